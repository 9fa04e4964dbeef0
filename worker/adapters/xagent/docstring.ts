/** The declaration of a function in Python, read out of its source: XAgent's tools are described by their docstrings. */
export interface FunctionDocumentation {
  description: string;
  properties: Record<string, { type?: string; description?: string }>;
  required: string[];
}

const TYPES: Readonly<Record<string, string>> = {
  string: 'string',
  str: 'string',
  integer: 'integer',
  int: 'integer',
  number: 'number',
  float: 'number',
  boolean: 'boolean',
  bool: 'boolean',
  object: 'object',
  dict: 'object',
  array: 'array',
  list: 'array',
};
const FIELD = /^\s*:(\w+)/;
const PARAMETER = /^\s*:param\s+(?:(\S+)\s+)?([A-Za-z_]\w*)\s*:\s*(.*)$/;

/** Undefined where the source has no such function. */
export function functionDocumentation(source: string, name: string): FunctionDocumentation | undefined {
  const lines = docstringOf(source, name)?.split('\n');
  if (lines === undefined) return undefined;
  const fieldAt = lines.findIndex((line) => FIELD.test(line));
  const head = fieldAt < 0 ? lines : lines.slice(0, fieldAt);
  const documentation: FunctionDocumentation = {
    description: head
      .map((line) => line.trim())
      .join('\n')
      .trim(),
    properties: {},
    required: [],
  };
  for (const field of fieldsOf(fieldAt < 0 ? [] : lines.slice(fieldAt))) addParameter(documentation, field);
  return documentation;
}

/** Each field with the lines that go on with it, as one. */
function fieldsOf(lines: readonly string[]): string[] {
  const fields: string[] = [];
  for (const line of lines) {
    if (FIELD.test(line)) fields.push(line.trim());
    else if (line.trim() !== '') fields.push(`${fields.pop() ?? ''} ${line.trim()}`);
  }
  return fields;
}

/** `:param type? name: …`; the mark behind the type says that it may be left out. */
function addParameter({ properties, required }: FunctionDocumentation, field: string): void {
  const [, given = '', name, description = ''] = PARAMETER.exec(field) ?? [];
  if (name === undefined) return;
  const isOptional = given.endsWith('?');
  const word = given.replace(/\?$/, '').replace(/\[.*$/, '').toLowerCase();
  const type = Object.hasOwn(TYPES, word) ? TYPES[word] : undefined;
  properties[name] = {
    ...(type === undefined ? {} : { type }),
    ...(description === '' ? {} : { description }),
  };
  if (!isOptional) required.push(name);
}

/** Empty where the function has none. */
function docstringOf(source: string, name: string): string | undefined {
  const head = new RegExp(`^[ \\t]*(?:async[ \\t]+)?def[ \\t]+${name}[ \\t]*\\(`, 'm').exec(source);
  if (head === null) return undefined;
  const body = source.slice(bodyStart(source, head.index + head[0].length));
  const opening = /^\s*[rR]?("""|'''|"|')/.exec(body);
  if (opening === null) return '';
  const quote = opening[1] ?? '"';
  const from = opening[0].length;
  const to = body.indexOf(quote, from);
  return to < 0 ? '' : body.slice(from, to);
}

/** Behind the colon that ends the signature: the first one outside of all brackets and texts. */
function bodyStart(source: string, from: number): number {
  let depth = 1;
  for (let at = from; at < source.length; at += 1) {
    const character = source.charAt(at);
    if ('([{'.includes(character)) depth += 1;
    else if (')]}'.includes(character)) depth -= 1;
    else if (character === '"' || character === "'") at = textEnd(source, at);
    else if (character === ':' && depth === 0) return at + 1;
  }
  return source.length;
}

function textEnd(source: string, from: number): number {
  const quote = source.charAt(from);
  for (let at = from + 1; at < source.length; at += 1) {
    if (source.charAt(at) === '\\') at += 1;
    else if (source.charAt(at) === quote) return at;
  }
  return source.length;
}
