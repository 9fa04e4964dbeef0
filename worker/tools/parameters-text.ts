/** What the arguments of a tool are called and mean, as text to search in. */
import { isSchema, propertiesOf, resolved, textOf } from '../formats/json-schema.ts';
import type { JsonSchema } from './definition.ts';

const MAX_DEPTH = 3;
const MAX_PROPERTIES = 100;
const MAX_VALUES = 64;

export function parametersText(schema: JsonSchema): string {
  const texts: string[] = [];
  collect(schema, schema, { texts, depth: 0 });
  return texts.join('\n');
}

function collect(
  schema: JsonSchema,
  root: JsonSchema,
  { texts, depth }: { texts: string[]; depth: number },
): void {
  if (depth > MAX_DEPTH) return;
  for (const [name, property] of propertiesOf(schema)) {
    if (texts.length >= MAX_PROPERTIES) return;
    const target = resolved(property, root) ?? {};
    texts.push([name, textOf(property.description) ?? '', ...valuesOf(target)].join(' '));
    collect(target, root, { texts, depth: depth + 1 });
    if (isSchema(target.items)) collect(target.items, root, { texts, depth: depth + 1 });
  }
}

/** What a value may be chosen from is asked for by name. */
function valuesOf({ enum: values }: JsonSchema): string[] {
  if (!Array.isArray(values)) return [];
  return values.filter((value) => typeof value === 'string').slice(0, MAX_VALUES);
}
