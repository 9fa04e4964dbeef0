/**
 * Makes the source of a cell run as a script: static imports become awaited ones, `import()` finds modules from the
 * working directory, and a top-level `const` may be declared again. Lines stay where they are.
 */
export const IMPORT_FUNCTION = '__sandgate_import';

const TOKEN =
  /\s+|\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:\\[\s\S]|[^"\\\n])*"|'(?:\\[\s\S]|[^'\\\n])*'|[\p{ID_Start}$_#][\p{ID_Continue}$\u200c\u200d]*|\d[\w.]*|[\s\S]/uy;
const TEMPLATE = /(?:\\[\s\S]|\$(?!\{)|[^\\`$])*(`|\$\{)/uy;
const REGULAR_EXPRESSION = /\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/\w*/uy;
const BLANK = /^(?:\s|\/[/*])/u;
/** Behind these a slash begins a regular expression; behind every other word, a number or a bracket it divides. */
const BEFORE_EXPRESSION =
  /^(?:return|typeof|case|in|of|delete|void|throw|new|instanceof|yield|await|else|do|[^\p{ID_Continue}$)\]}"'`])$/u;
const NAME = String.raw`[\p{ID_Start}$_][\p{ID_Continue}$]*`;
const STRING = String.raw`"[^"\n]*"|'[^'\n]*'`;
const STATIC_IMPORT = new RegExp(
  String.raw`import\s*(?:(?:(${NAME})\s*(?:,\s*)?)?(?:\*\s*as\s+(${NAME})|\{([^}]*)\})?\s*from\s*)?(${STRING})[ \t]*;?`,
  'uy',
);
const SPECIFIER = new RegExp(String.raw`^(${NAME}|${STRING})(?:\s+as\s+(${NAME}))?$`, 'u');

/** Source that cannot be followed, such as a text without its end, stays as it is: the engine says what is wrong. */
export function scriptOf(source) {
  const edits = [];
  const open = [];
  let before = '';
  let at = 0;
  while (at < source.length) {
    const token = nextToken(source, at, before, open);
    if (token === undefined) return source;
    const edit = before === '.' ? undefined : editOf(source, at, token, open.length);
    if (edit !== undefined) edits.push(edit);
    at = edit?.end ?? at + token.length;
    if (!BLANK.test(token) || token.startsWith('/') === BEFORE_EXPRESSION.test(token)) before = token;
  }
  return applied(source, edits);
}

function nextToken(source, at, before, open) {
  const char = source[at];
  if (char === '`' || (char === '}' && open.at(-1) === '`')) {
    if (char === '}') open.pop();
    const rest = match(TEMPLATE, source, at + 1);
    if (rest === undefined) return undefined;
    if (rest.endsWith('{')) open.push('`');
    // Behind an opened brace an expression begins, behind the end of a template it does not.
    return char + rest;
  }
  if (char === '/' && !/^[/*]/u.test(source.slice(at + 1, at + 2)) && beginsExpression(before)) {
    const expression = match(REGULAR_EXPRESSION, source, at);
    if (expression !== undefined) return expression;
  }
  if (char === '(' || char === '[' || char === '{') open.push(char);
  if (char === ')' || char === ']' || char === '}') open.pop();
  return match(TOKEN, source, at);
}

function beginsExpression(before) {
  return before === '' || before.endsWith('${') || BEFORE_EXPRESSION.test(before);
}

function match(pattern, source, at) {
  pattern.lastIndex = at;
  return pattern.exec(source)?.[0];
}

function editOf(source, at, token, depth) {
  if (token === 'const' && depth === 0) return { at, end: at + token.length, text: 'let  ' };
  if (token !== 'import') return undefined;
  if (/^\s*\(/u.test(source.slice(at + token.length, at + token.length + 100)))
    return { at, end: at + token.length, text: IMPORT_FUNCTION };
  if (depth > 0) return undefined;
  STATIC_IMPORT.lastIndex = at;
  const found = STATIC_IMPORT.exec(source);
  const text = found === null ? undefined : declarationOf(found);
  if (text === undefined) return undefined;
  const lines = found[0].split('\n').length - 1;
  return { at, end: at + found[0].length, text: text + '\n'.repeat(lines) };
}

function declarationOf([, defaultName, namespace, list, specifier]) {
  const wanted = defaultName === undefined ? [] : [['default', defaultName]];
  for (const part of (list ?? '').split(',')) {
    if (part.trim() === '') continue;
    const found = SPECIFIER.exec(part.trim());
    if (found === null) return undefined;
    wanted.push([found[1].replace(/^["']|["']$/gu, ''), found[2] ?? found[1]]);
  }
  const names = JSON.stringify(wanted.map(([name]) => name));
  const pattern = wanted.map(([name, local]) => `${JSON.stringify(name)}: ${local}`).join(', ');
  const imported = `await ${IMPORT_FUNCTION}.named(${specifier}, ${names})`;
  if (namespace !== undefined)
    return wanted.length === 0
      ? `let ${namespace} = ${imported};`
      : `let ${namespace} = ${imported}, {${pattern}} = ${namespace};`;
  return wanted.length === 0 ? `void (${imported});` : `let {${pattern}} = ${imported};`;
}

function applied(source, edits) {
  let script = '';
  let at = 0;
  for (const edit of edits) {
    script += source.slice(at, edit.at) + edit.text;
    at = edit.end;
  }
  return script + source.slice(at);
}
