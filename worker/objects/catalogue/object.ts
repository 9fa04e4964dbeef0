/** The tools of one tenant: registered, listed and searched here, away from the objects that calls go through. */
import { DurableObject } from 'cloudflare:workers';
import { type Failure, failure, type Outcome, success } from '../../../shared/errors.ts';
import {
  type DefinedTool,
  MAX_TOOL_CHARACTERS_OF_A_TENANT,
  MAX_TOOL_VERSIONS,
  MAX_TOOLS_OF_A_TENANT,
  nameFault,
  type RegisteredMany,
  type RegisteredTool,
  RegisteredToolSchema,
  scopesOfKind,
} from '../../../shared/registered-tool.ts';
import type { Env } from '../../env.ts';
import { exportedNames, FUNCTION_NAMES, MCP_NAMES } from '../../formats/names.ts';
import { BUILT_IN_ENTRIES } from '../../tools/catalogue.ts';
import { templateOrigin } from '../../tools/http/address.ts';
import { type Guarded, isInCategory, mayBeCalledBy, mayUse } from '../../tools/policy.ts';
import { registeredGuard } from '../../tools/registered.ts';
import type {
  CataloguePort,
  FindTools,
  FoundByName,
  FoundTools,
  ListedTools,
  NameKind,
  PutSource,
  PutTool,
  SharedCatalogue,
  SourceReport,
  StoredSource,
  StoredTool,
  ToolFilter,
  ToolKey,
} from './port.ts';
import { SHARED } from './shared-name.ts';
import {
  MAX_SHARED_TOOL_CHARACTERS,
  MAX_SHARED_TOOLS,
  SharedTools,
  sharedCatalogue,
} from './shared-tools.ts';
import { type NamedPut, Sources } from './sources/sources.ts';
import { CatalogueStore } from './store.ts';
import { ToolSearch } from './tool-search.ts';

type Put = { tool: RegisteredTool; change: 'created' | 'replaced' | 'unchanged' };

export class CatalogueObject extends DurableObject<Env> implements CataloguePort {
  readonly #store: CatalogueStore;
  readonly #sources: Sources;
  readonly #search: ToolSearch;
  /** None in the catalogue that holds them. */
  readonly #shared: SharedTools | undefined;
  /** Of the tools that can be called. Made from the rows when it is first asked for, and kept as they change. */
  #guarded: Map<string, Guarded> | undefined;
  #count: number | undefined;
  #characters: number | undefined;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#store = new CatalogueStore(ctx.storage);
    this.#sources = new Sources(ctx.storage, {
      put: ({ put, names }, source) => this.#put(put, names, { mode: 'replace', source }),
      remove: (name) => {
        this.#remove(name);
      },
    });
    this.#search = new ToolSearch(ctx.storage, { env, tools: () => this.#callable() });
    const isShared = ctx.id.name === SHARED;
    this.#shared = isShared
      ? undefined
      : new SharedTools(env, this.#sources, async (tools) => {
          this.#sources.replaceTools(SHARED, await namedPuts(tools));
        });
  }

  async put(
    input: PutTool & { mode: 'create' | 'replace' },
  ): Promise<Outcome<{ tool: RegisteredTool; isNew: boolean }>> {
    const names = await namesOf(input.tool.name);
    const put = this.#put(input, names, { mode: input.mode, source: null });
    return put.ok ? success({ tool: put.value.tool, isNew: put.value.change === 'created' }) : put;
  }

  async putMany(inputs: PutTool[]): Promise<Outcome<RegisteredMany['tools']>> {
    const names = await Promise.all(inputs.map(({ tool }) => namesOf(tool.name)));
    const entries = inputs.map((input, index) => {
      const { name } = input.tool;
      const put = this.#put(input, names[index] ?? { functionName: name, mcpName: name }, {
        mode: 'replace',
        source: null,
      });
      if (!put.ok) return { name, status: 'refused' as const, reason: put.detail };
      const { tool, change } = put.value;
      return { name, status: tool.status === 'broken' ? ('broken' as const) : change, reason: tool.reason };
    });
    return success(entries);
  }

  /** Without a pause from the look to the write. */
  #put(
    { tool, credentials, fault }: PutTool,
    names: { functionName: string; mcpName: string },
    { mode, source }: { mode: 'create' | 'replace'; source: string | null },
  ): Outcome<Put> {
    const known = this.#store.find(tool.name, 'name');
    if (known !== undefined && known.tool.source !== source) return ownedFault(known.tool, source);
    const maxTools = this.#shared === undefined ? MAX_SHARED_TOOLS : MAX_TOOLS_OF_A_TENANT;
    if (known === undefined && this.#total() >= maxTools) {
      return failure('quota_exceeded', `there are at most ${maxTools} tools`);
    }
    if (credentials === undefined && known?.sealedCredentials && originOf(known.tool) !== originOf(tool)) {
      return failure('invalid_request', 'the credentials are not taken along to another host', {
        violations: [
          { path: 'body.credentials', expected: 'given again, or {}, for an address of another host' },
        ],
      });
    }
    const nowText = new Date().toISOString();
    const versions = this.#store.versions(tool.name).map(({ version }) => version);
    const sealed = credentials === undefined ? known?.sealedCredentials : credentials?.sealed;
    const credentialNames =
      credentials === undefined ? credentialNamesOf(known?.tool) : (credentials?.names ?? []);
    const state = {
      required_scopes: tool.required_scopes ?? scopesOfKind(tool),
      status:
        fault !== null ? ('broken' as const) : tool.disabled ? ('disabled' as const) : ('ready' as const),
      reason: fault,
      created_at: known?.tool.created_at ?? nowText,
      updated_at: nowText,
      versions: [tool.version, ...versions.filter((version) => version !== tool.version)].slice(
        0,
        MAX_TOOL_VERSIONS,
      ),
    };
    // As it would be read again: then two that are the same are the same text.
    const shown = RegisteredToolSchema.parse({
      ...tool,
      ...state,
      credential_names: credentialNames,
      source,
    });
    // Sealed anew, the same credentials are another text each time.
    const isSealedSame = (credentials?.sealed ?? null) === known?.sealedCredentials;
    if (known !== undefined && source !== null && isSealedSame && isSame(shown, known.tool))
      return success({ tool: known.tool, change: 'unchanged' });
    if (known !== undefined && mode === 'create' && versions.includes(tool.version)) {
      const isBare = credentials === undefined || (credentials === null && known.sealedCredentials === null);
      if (isBare && isSame(shown, known.tool)) {
        return success({ tool: known.tool, change: 'unchanged' });
      }
      return failure('tool_exists', `${tool.name} has a version ${tool.version} already`);
    }
    const grown =
      JSON.stringify(shown).length - (known === undefined ? 0 : JSON.stringify(known.tool).length);
    this.#characters ??= this.#store.characters();
    const maxCharacters =
      this.#shared === undefined ? MAX_SHARED_TOOL_CHARACTERS : MAX_TOOL_CHARACTERS_OF_A_TENANT;
    if (grown > 0 && this.#characters + grown > maxCharacters) {
      const detail = `the definitions have at most ${maxCharacters} characters`;
      return failure('quota_exceeded', detail);
    }
    this.#store.put({ tool: shown, sealedCredentials: sealed ?? null, ...names }, MAX_TOOL_VERSIONS);
    this.#characters += grown;
    if (known === undefined) this.#count = this.#total() + 1;
    this.#note(shown);
    return success({ tool: shown, change: known === undefined ? 'created' : 'replaced' });
  }

  async get(name: string, version: string | null): Promise<Outcome<RegisteredTool>> {
    await this.#shared?.follow();
    const tool = version === null ? this.#store.find(name, 'name')?.tool : this.#store.version(name, version);
    return tool === undefined ? failure('not_found', 'no such tool, or not yours') : success(tool);
  }

  async remove(name: string): Promise<Outcome<null>> {
    const known = this.#store.find(name, 'name');
    if (known === undefined) return failure('not_found', 'no such tool, or not yours');
    if (known.tool.source !== null) return ownedFault(known.tool, null);
    this.#remove(name);
    this.#shared?.askAgain();
    return success(null);
  }

  async putSource(input: PutSource) {
    return this.#sources.put(input);
  }

  async getSource(name: string): Promise<Outcome<StoredSource>> {
    return this.#sources.get(name);
  }

  async listSources() {
    return success(this.#sources.list());
  }

  async removeSource(name: string): Promise<Outcome<null>> {
    return this.#sources.remove(name);
  }

  async reportSource(name: string, report: SourceReport): Promise<Outcome<null>> {
    const { tools } = report;
    if (tools === undefined) return this.#sources.report(name, report, undefined);
    return this.#sources.report(name, report, await namedPuts(tools));
  }

  async shared(knownRevision: string): Promise<Outcome<SharedCatalogue>> {
    return success(sharedCatalogue(this.#store.revision(), knownRevision, () => this.#store.all()));
  }

  #remove(name: string): void {
    this.#store.remove(name);
    this.#count = undefined;
    this.#characters = undefined;
    if (nameFault(name) !== undefined) return;
    this.#search.remove(name);
    this.#guarded?.delete(name);
  }

  async find({ keys, known, revision: knownRevision }: FindTools): Promise<Outcome<FoundByName>> {
    await this.#shared?.follow();
    const revision = this.#store.revision();
    const changed = revision === knownRevision ? null : this.#found(known);
    return success({ revision, tools: this.#found(keys), changed });
  }

  #found(keys: readonly ToolKey[]): (StoredTool | null)[] {
    return keys.map(({ name, kind }) => {
      const found = this.#store.find(name, kind);
      return found === undefined || nameFault(found.tool.name) !== undefined ? null : found;
    });
  }

  async listAll(page: Parameters<CataloguePort['listAll']>[0]): Promise<Outcome<ListedTools>> {
    const isEvery = () => true;
    return success(this.#page({ ...page, order: 'name' }, { accepts: isEvery, takes: isEvery }));
  }

  async list({
    scopes,
    toolPolicy,
    category,
    caller,
    order,
    after,
    limit,
    maxCharacters,
  }: ToolFilter & {
    order: NameKind;
    after: string | null;
    limit: number;
    maxCharacters: number;
  }): Promise<Outcome<ListedTools>> {
    await this.#shared?.follow();
    const bounds = { order, after, limit, maxCharacters };
    const accepts = this.#filter({ scopes, toolPolicy, category, caller });
    return success(this.#page(bounds, { accepts, takes: isCalled }));
  }

  #page(
    { order, after, limit, maxCharacters }: Parameters<CataloguePort['listAll']>[0] & { order: NameKind },
    { accepts, takes }: { accepts: (name: string) => boolean; takes: (tool: RegisteredTool) => boolean },
  ): ListedTools {
    const tools: RegisteredTool[] = [];
    let last = after ?? '';
    let characters = 0;
    for (const { key, name } of this.#store.keysAfter(last, order)) {
      const tool = accepts(name) ? this.#store.find(name, 'name')?.tool : undefined;
      if (tool === undefined || !takes(tool)) continue;
      const length = JSON.stringify(tool).length;
      if (tools.length >= limit || (tools.length > 0 && characters + length > maxCharacters)) {
        return { tools, next: last };
      }
      tools.push(tool);
      characters += length;
      last = key;
    }
    return { tools, next: null };
  }

  async search({
    scopes,
    toolPolicy,
    category,
    query,
    limit,
  }: ToolFilter & { query: string; limit: number }): Promise<Outcome<FoundTools>> {
    await this.#shared?.follow();
    const filter = () => this.#filter({ scopes, toolPolicy, category });
    const { hits, embeddings } = await this.#search.search({ query, limit, filter });
    return success({
      hits: hits.map(({ id, score }) => {
        const tool = this.#store.find(id, 'name')?.tool;
        return { name: id, score, tool: tool !== undefined && isCalled(tool) ? tool : null };
      }),
      embeddings,
    });
  }

  /** Only the search sets it. */
  override async alarm(): Promise<void> {
    await this.#search.embed();
  }

  /** The one rule of who sees what, for lists and searches alike. */
  #filter({ scopes, toolPolicy, category, caller = 'direct' }: ToolFilter): (name: string) => boolean {
    const rights = { scopes: new Set(scopes), toolPolicy };
    const guarded = this.#guards();
    return (name) => {
      const guard = guarded.get(name);
      if (guard === undefined || !mayUse(rights, guard)) return false;
      if (!mayBeCalledBy(caller, guard.allowedCallers)) return false;
      return category === undefined || isInCategory(category, guard);
    };
  }

  #guards(): Map<string, Guarded> {
    if (this.#guarded !== undefined) return this.#guarded;
    this.#guarded = new Map(
      BUILT_IN_ENTRIES.map(({ name, scope, category }) => [
        name,
        { name, requiredScopes: [scope], category },
      ]),
    );
    for (const tool of this.#callable()) this.#guarded.set(tool.name, registeredGuard(tool));
    return this.#guarded;
  }

  /** What stands under the name of a built-in tool is that one. */
  *#callable(): Generator<RegisteredTool> {
    for (const { tool } of this.#store.all()) {
      if (isCalled(tool) && nameFault(tool.name) === undefined) yield tool;
    }
  }

  /** Follows a change in what is in memory already. */
  #note(tool: RegisteredTool): void {
    const { name } = tool;
    if (nameFault(name) !== undefined) return;
    if (isCalled(tool)) {
      this.#search.put(tool);
      this.#guarded?.set(name, registeredGuard(tool));
    } else {
      this.#search.remove(name);
      this.#guarded?.delete(name);
    }
  }

  #total(): number {
    this.#count ??= this.#store.count();
    return this.#count;
  }
}

/** Under the name of one that is not stands the built-in tool that took it. */
function isCalled({ status }: RegisteredTool): boolean {
  return status === 'ready';
}

async function namedPuts(tools: PutTool[]): Promise<NamedPut[]> {
  return Promise.all(tools.map(async (put) => ({ put, names: await namesOf(put.tool.name) })));
}

async function namesOf(name: string): Promise<{ functionName: string; mcpName: string }> {
  const [functions, mcp] = await Promise.all([
    exportedNames([name], FUNCTION_NAMES),
    exportedNames([name], MCP_NAMES),
  ]);
  return { functionName: functions.get(name) ?? name, mcpName: mcp.get(name) ?? name };
}

/** A tool is its source's, or the tenant's own: neither takes the other's place. */
function ownedFault({ name, source }: RegisteredTool, by: string | null): Failure {
  if (source === null) return failure('source_owned', `a registered tool has the name ${name}`);
  if (source === SHARED) return failure('source_owned', `${name} is a tool of the operator, for all`);
  return by === null
    ? failure('source_owned', `${name} is a tool of the source ${source}: change it there`)
    : failure('source_owned', `${name} is a tool of the source ${source}`);
}

function credentialNamesOf(tool: RegisteredTool | undefined): string[] {
  return tool?.kind === 'http' ? tool.credential_names : [];
}

/** Whom the credentials of a tool are for. */
function originOf(tool: RegisteredTool | DefinedTool): string | undefined {
  return tool.kind === 'http' ? templateOrigin(tool.url) : undefined;
}

/** But for when it was written. */
function isSame(one: RegisteredTool, other: RegisteredTool): boolean {
  const undated = (tool: RegisteredTool) => JSON.stringify({ ...tool, updated_at: '', versions: [] });
  return undated(one) === undated(other);
}
