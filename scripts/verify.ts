/** `npm run verify -- FILE [--keys KEYS]`: checks a receipt or a session's whole chain offline, with public keys only. */
import { readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import * as z from 'zod';
import {
  ReceiptExportSchema,
  type TrustedKeys,
  TrustedKeysSchema,
  verifyChain,
  verifyReceipt,
} from '../shared/receipt-verify.ts';

const USAGE = 'usage: npm run verify -- FILE [--keys KEYS]';

interface Report {
  lines: string[];
  exitCode: 0 | 1 | 2;
}

async function main(argv: string[]): Promise<Report> {
  let positionals: string[];
  let keysFile: string | undefined;
  try {
    const parsed = parseArgs({ args: argv, allowPositionals: true, options: { keys: { type: 'string' } } });
    positionals = parsed.positionals;
    keysFile = parsed.values.keys;
  } catch (error: unknown) {
    return unusable(`${error instanceof Error ? error.message : String(error)}; ${USAGE}`);
  }
  const [file, ...others] = positionals;
  if (file === undefined || others.length > 0) return unusable(USAGE);
  const input = await readJson(file);
  if (!input.ok) return unusable(input.problem);
  const pinned = keysFile === undefined ? undefined : await readKeys(keysFile);
  if (pinned !== undefined && !pinned.ok) return unusable(pinned.problem);
  return verify(input.value, pinned?.keys);
}

const SingleReceiptSchema = z.union([
  z.object({ receipt: z.unknown().refine((receipt) => typeof receipt === 'object' && receipt !== null) }),
  z.object({ payloadType: z.string() }).loose(),
]);

async function verify(input: unknown, pinned: TrustedKeys | undefined): Promise<Report> {
  const chain = ReceiptExportSchema.loose().safeParse(input);
  if (chain.success) return verifySession(chain.data, pinned);
  const single = SingleReceiptSchema.safeParse(input);
  if (!single.success) return unusable('the file holds neither a receipt nor an export of a session');
  if (pinned === undefined)
    return unusable('a single receipt needs --keys KEYS (the `keys` of a session export)');
  const envelope = 'receipt' in single.data ? single.data.receipt : single.data;
  const verified = await verifyReceipt(envelope, pinned);
  if (!verified.ok) return refused(`${verified.code}: ${verified.detail}`);
  const { receipt } = verified.value;
  return {
    exitCode: 0,
    lines: [`valid  ${receipt.execution_id}  ${receipt.tool}  ${receipt.status}  by ${receipt.host_id}`],
  };
}

async function verifySession(
  chain: z.infer<typeof ReceiptExportSchema>,
  pinned: TrustedKeys | undefined,
): Promise<Report> {
  const verified = await verifyChain(chain.receipts, pinned ?? chain.keys, chain.session_id);
  if (!verified.ok) return refused(`receipt ${verified.seq ?? '?'}: ${verified.code}: ${verified.detail}`);
  const lines = verified.value.map(
    (receipt) => `valid  ${receipt.seq}  ${receipt.execution_id}  ${receipt.tool}  ${receipt.status}`,
  );
  lines.push(`chain of ${verified.value.length} receipts of ${chain.session_id} is whole`);
  if (pinned === undefined) {
    lines.push('note: the keys came with the file; give --keys with keys you trust to be sure who signed');
  }
  return { exitCode: 0, lines };
}

async function readKeys(
  file: string,
): Promise<{ ok: true; keys: TrustedKeys } | { ok: false; problem: string }> {
  const input = await readJson(file);
  if (!input.ok) return input;
  const parsed = z.union([TrustedKeysSchema, z.object({ keys: TrustedKeysSchema })]).safeParse(input.value);
  if (!parsed.success) return { ok: false, problem: `${file} does not hold {edge: [...], hosts: [...]}` };
  return { ok: true, keys: 'keys' in parsed.data ? parsed.data.keys : parsed.data };
}

async function readJson(
  file: string,
): Promise<{ ok: true; value: unknown } | { ok: false; problem: string }> {
  try {
    const value: unknown = JSON.parse(await readFile(file, 'utf8'));
    return { ok: true, value };
  } catch (error: unknown) {
    const why = error instanceof SyntaxError ? 'is not JSON' : 'cannot be read';
    return { ok: false, problem: `${file} ${why}` };
  }
}

function refused(line: string): Report {
  return { exitCode: 1, lines: [`REFUSED  ${line}`] };
}

function unusable(line: string): Report {
  return { exitCode: 2, lines: [line] };
}

const report = await main(process.argv.slice(2));
for (const line of report.lines) (report.exitCode === 0 ? console.log : console.error)(line);
process.exitCode = report.exitCode;
