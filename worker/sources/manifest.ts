/** The tools of a manifest: `{tools: [...]}`, each as it would be registered, with addresses that may begin at the manifest's own host. */
import * as z from 'zod';
import { type RegisterTool, RegisterToolSchema, scopesOfKind } from '../../shared/registered-tool.ts';
import { MAX_TOOLS_OF_A_SOURCE, type ToolSource } from '../../shared/tool-source.ts';
import { violationsOf } from '../middleware/violations.ts';
import type { PutTool } from '../objects/catalogue/port.ts';
import { type AddressRules, templateOrigin } from '../tools/http/address.ts';
import { faultOf, reasonOf } from '../tools/registered.ts';
import { noted, ruled, type SourceProblem, type SourceTools, sourceToolName } from './source-tool.ts';

const ManifestSchema = z.looseObject({ tools: z.array(z.unknown()).max(MAX_TOOLS_OF_A_SOURCE) });

export interface ManifestContext {
  /** Of the address that it has; undefined where it is only pushed. */
  origin: string | undefined;
  /** Scopes of who made the source: nobody gets a tool that does what they may not do. */
  rights: ReadonlySet<string>;
  rules: AddressRules;
  /** Seals the source's credentials for the tool of this name. */
  credentialsFor: (name: string) => Promise<PutTool['credentials']>;
}

/** Undefined where it is no manifest. */
export async function manifestTools(
  source: ToolSource,
  document: unknown,
  context: ManifestContext,
): Promise<SourceTools | undefined> {
  const manifest = ManifestSchema.safeParse(document);
  if (!manifest.success) return undefined;
  const puts: PutTool[] = [];
  const problems: SourceProblem[] = [];
  const names = new Set<string>();
  for (const [index, one] of manifest.data.tools.entries()) {
    const given = z.record(z.string(), z.unknown()).safeParse(one);
    const name = given.success && typeof given.data.name === 'string' ? given.data.name : null;
    const read = given.success ? await toolOf(source, given.data, context) : 'it is not an object';
    if (typeof read === 'string') {
      noted(problems, { name: name ?? `tools.${index}`, reason: read });
    } else if (names.has(read.name)) {
      noted(problems, { name, reason: 'it is listed twice' });
    } else {
      names.add(read.name);
      puts.push(await putOf(read, context));
    }
  }
  return { puts, problems };
}

/** Or what is wrong with it. */
async function toolOf(
  source: ToolSource,
  given: Record<string, unknown>,
  { origin, rights }: ManifestContext,
): Promise<RegisterTool | string> {
  if (typeof given.name !== 'string' || given.name === '') return 'it has no name';
  if ('credentials' in given) return 'credentials are given to the source, not in the manifest';
  const tool = RegisterToolSchema.safeParse({
    kind: 'http',
    category: source.name,
    ...given,
    ...(typeof given.url === 'string' && given.url.startsWith('/') && origin !== undefined
      ? { url: `${origin}${given.url}` }
      : {}),
    name: await sourceToolName(source.name, given.name),
  });
  if (!tool.success) {
    const [violation] = violationsOf(tool.error, 'tool');
    return violation === undefined ? 'it is not a tool' : reasonOf(violation);
  }
  const missing = scopesOfKind(tool.data).filter((scope) => !rights.has(scope));
  if (missing.length > 0) return `who made the source lacks ${missing.join(', ')}`;
  return { ...tool.data, ...ruled(source, given.name, tool.data) };
}

/** Credentials go where the manifest came from and nowhere else, whatever it says. */
async function putOf(tool: RegisterTool, context: ManifestContext): Promise<PutTool> {
  const fault = faultOf(tool, context.rules);
  const isHome =
    tool.kind === 'http' && context.origin !== undefined && templateOrigin(tool.url) === context.origin;
  return {
    tool,
    credentials: isHome ? await context.credentialsFor(tool.name) : null,
    fault: fault === undefined ? null : reasonOf(fault),
  };
}
