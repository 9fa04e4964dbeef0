/** The page of all failure codes, as Markdown. */
import { ERRORS } from '../../shared/errors.ts';

export const ERRORS_PAGE = 'docs/errors.md';

const INTRODUCTION = `# Errors

Made by \`npm run errors\` from the list in \`shared/errors.ts\`; a test holds it there.

A refused request is answered with \`application/problem+json\` (RFC 9457):
`;

const MEMBERS = [
  ['member', ''],
  ['`type`', '`urn:sandgate:error:<code>`'],
  ['`title`', 'the reason below'],
  ['`status`', 'the HTTP status'],
  ['`code`', 'one of this list; it never changes its meaning'],
  ['`detail`', 'what was wrong this time; for people, not for programs'],
  ['`retryable`', 'whether the same request may succeed later; `Retry-After` says when'],
  ['`request_id`', 'finds the request in the logs; the `Request-Id` header has it too'],
  ['`violations`', 'where values were wrong: `{path, expected, received?}`'],
  [
    '`limit`',
    'which limit was reached: `{name, scope, limit, used, resets_at}`, see [tenants.md](tenants.md)',
  ],
];

const REST = `A program that fails is no error: the call is answered with 200, and its \`status\` says how it ended. Codes that a host gives are
the \`reason\` of an execution that ended as \`refused\`, too.
`;

export function errorsPage(): string {
  const rows = Object.entries(ERRORS).map(([code, { status, retryable, reason }]) => [
    `\`${code}\``,
    String(status),
    retryable ? 'yes' : '',
    reason,
  ]);
  return `${INTRODUCTION}\n${table(MEMBERS)}\n${REST}\n${table([['code', 'status', 'retryable', 'reason'], ...rows])}`;
}

function table(rows: readonly string[][]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |\n`;
  const [head = [], ...body] = rows;
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...body.map(line)].join('');
}
