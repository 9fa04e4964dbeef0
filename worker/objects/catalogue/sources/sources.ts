/** The sources of a tenant's tools: kept here, asked elsewhere, so that a slow one holds up nothing. */
import { failure, type Outcome, success } from '../../../../shared/errors.ts';
import {
  MAX_SOURCE_PROBLEMS,
  MAX_SOURCES_OF_A_TENANT,
  type SourceState,
  type ToolSource,
} from '../../../../shared/tool-source.ts';
import type { PutSource, PutTool, SourceReport, StoredSource } from '../port.ts';
import { SourceStore } from './store.ts';

/** A tool with what it is called in the lists of others. */
export interface NamedPut {
  put: PutTool;
  names: { functionName: string; mcpName: string };
}

/** What the registry does with single tools. */
export interface ToolShelf {
  put(put: NamedPut, source: string): Outcome<unknown>;
  remove(name: string): void;
}

export class Sources {
  readonly #store: SourceStore;
  readonly #shelf: ToolShelf;

  constructor(storage: DurableObjectStorage, shelf: ToolShelf) {
    this.#store = new SourceStore(storage);
    this.#shelf = shelf;
  }

  put({ source, rights, secrets, mode }: PutSource): Outcome<{ source: ToolSource; isNew: boolean }> {
    const known = this.#store.find(source.name);
    if (known !== undefined && mode === 'create')
      return failure('source_exists', `there is a source ${source.name} already`);
    if (known === undefined && this.#store.count() >= MAX_SOURCES_OF_A_TENANT)
      return failure('quota_exceeded', `a tenant has at most ${MAX_SOURCES_OF_A_TENANT} sources`);
    const kept = known === undefined ? undefined : stateOf(known.source);
    const shown: ToolSource = {
      ...source,
      ...(kept === undefined ? {} : { ...kept, created_at: known?.source.created_at ?? source.created_at }),
      status: source.disabled ? 'disabled' : 'pending',
      last_error: null,
    };
    this.#store.put({ source: shown, revision: (known?.revision ?? 0) + 1, rights, secrets });
    return success({ source: shown, isNew: known === undefined });
  }

  get(name: string): Outcome<StoredSource> {
    const row = this.#store.find(name);
    return row === undefined ? failure('not_found', 'no such tool source, or not yours') : success(row);
  }

  list(): ToolSource[] {
    return this.#store.all().map(({ source }) => source);
  }

  remove(name: string): Outcome<null> {
    if (this.#store.find(name) === undefined)
      return failure('not_found', 'no such tool source, or not yours');
    for (const tool of this.#store.toolNames(name)) this.#drop(tool);
    this.#store.remove(name);
    return success(null);
  }

  /** Without `tools` only how the source is. What was found for a former one is not taken. */
  report(name: string, { revision, state }: SourceReport, tools: NamedPut[] | undefined): Outcome<null> {
    const row = this.#store.find(name);
    if (row?.revision !== revision) return failure('not_found', 'the source is another one by now');
    const refused = tools === undefined ? undefined : this.replaceTools(name, tools);
    const counted =
      refused === undefined
        ? {}
        : {
            tool_count: this.#store.toolNames(name).length,
            broken_count: (tools ?? []).filter(({ put }) => put.fault !== null).length,
            problems: [...(state.problems ?? []), ...refused].slice(0, MAX_SOURCE_PROBLEMS),
          };
    this.#store.put({ ...row, source: { ...row.source, ...state, ...counted } });
    return success(null);
  }

  get sharedRevision(): string {
    return this.#store.sharedRevision;
  }

  set sharedRevision(revision: string) {
    this.#store.sharedRevision = revision;
  }

  /** What the shelf does not take, with the reasons. */
  replaceTools(name: string, tools: NamedPut[]): SourceState['problems'] {
    const refused: SourceState['problems'] = [];
    const named = new Set(tools.map(({ put }) => put.tool.name));
    for (const gone of this.#store.toolNames(name)) if (!named.has(gone)) this.#drop(gone);
    for (const one of tools) {
      const stored = this.#shelf.put(one, name);
      if (stored.ok) this.#store.noteTool(one.put.tool.name, name);
      else refused.push({ name: one.put.tool.name, reason: stored.detail });
    }
    return refused;
  }

  #drop(tool: string): void {
    this.#shelf.remove(tool);
    this.#store.forgetTool(tool);
  }
}

function stateOf(source: ToolSource) {
  const { refreshed_at, tool_count, broken_count, problems, server, archive_bytes } = source;
  return { refreshed_at, tool_count, broken_count, problems, server, archive_bytes };
}
