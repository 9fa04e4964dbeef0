/** What two tool policies leave together: nothing that one of them does not. */
import type { ToolPolicy } from '../../shared/tool-policy.ts';
import { isInCategory } from './policy.ts';

export function narrowedPolicy(one: ToolPolicy | null, other: ToolPolicy | null): ToolPolicy | null {
  if (one === null || other === null) return one ?? other;
  const tools = narrowedNames(one.tools, other.tools, (name, by) => name === by);
  const categories = narrowedNames(one.categories, other.categories, (category, by) =>
    isInCategory(by, { category }),
  );
  const rules = [...(one.arguments ?? []), ...(other.arguments ?? [])];
  return {
    ...(tools === undefined ? {} : { tools }),
    ...(categories === undefined ? {} : { categories }),
    ...(rules.length === 0 ? {} : { arguments: rules }),
  };
}

/** Those of each that the other one covers. */
function narrowedNames(
  ones: string[] | undefined,
  others: string[] | undefined,
  isCovered: (name: string, by: string) => boolean,
): string[] | undefined {
  if (ones === undefined || others === undefined) return ones ?? others;
  const within = (names: string[], by: string[]) =>
    names.filter((name) => by.some((covering) => isCovered(name, covering)));
  return [...new Set([...within(ones, others), ...within(others, ones)])];
}
