/** What every tool of a source has in common: a name that begins with the source's, and what the tenant says of it. */
import {
  type DefinedTool,
  RegisteredToolNameSchema,
  type RegisterTool,
} from '../../shared/registered-tool.ts';
import { MAX_SOURCE_PROBLEMS, type ToolRule, type ToolSource } from '../../shared/tool-source.ts';
import { exportedNames, type NameRule } from '../formats/names.ts';
import type { PutTool } from '../objects/catalogue/port.ts';

export interface SourceTools {
  puts: PutTool[];
  problems: SourceProblem[];
}

export interface SourceProblem {
  name: string | null;
  reason: string;
}

const SOURCE_NAMES: NameRule = {
  isLegal: (name) => RegisteredToolNameSchema.safeParse(name).success,
  maxLength: 128,
};
const MAX_NAME_IN_PROBLEM = 128;

/** `source.tool`, or where that is no name: a legal part of it with a hash of the whole. */
export async function sourceToolName(source: string, remoteName: string): Promise<string> {
  const name = `${source}.${remoteName}`;
  return (await exportedNames([name], SOURCE_NAMES)).get(name) ?? name;
}

type Common = Pick<RegisterTool, 'category' | 'required_scopes' | 'approval' | 'timeout_ms' | 'disabled'>;

/** What the tenant says of this tool, else of all tools of the source, else what the tool says. */
export function ruled(
  source: ToolSource,
  remoteName: string,
  own: Partial<Common> & Pick<DefinedTool, 'category'>,
): Common {
  const rule: ToolRule = Object.hasOwn(source.tools, remoteName) ? (source.tools[remoteName] ?? {}) : {};
  return {
    category: rule.category ?? source.category ?? own.category,
    required_scopes: rule.required_scopes ?? source.required_scopes ?? own.required_scopes,
    approval: rule.approval ?? (source.approval === 'required' ? 'required' : (own.approval ?? 'none')),
    timeout_ms: rule.timeout_ms ?? own.timeout_ms ?? source.timeout_ms,
    disabled: rule.disabled ?? own.disabled ?? false,
  };
}

/** Of many that went wrong the first are named. */
export function noted(problems: SourceProblem[], problem: SourceProblem): void {
  if (problems.length >= MAX_SOURCE_PROBLEMS) return;
  problems.push({ ...problem, name: problem.name?.slice(0, MAX_NAME_IN_PROBLEM) ?? null });
}
