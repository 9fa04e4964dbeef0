/**
 * `npm run verify -- FILE... [--keys KEYS]`: checks a receipt or a session's chain offline, with public keys only. A chain
 * that came in several parts is given as its files in order, or as one file with their receipts joined.
 */
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

const USAGE = 'usage: npm run verify -- FILE... [--keys KEYS]';

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
  if (positionals.length === 0) return unusable(USAGE);
  const inputs: unknown[] = [];
  for (const file of positionals) {
    const input = await readJson(file);
    if (!input.ok) return unusable(input.problem);
    inputs.push(input.value);
  }
  const pinned = keysFile === undefined ? undefined : await readKeys(keysFile);
  if (pinned !== undefined && !pinned.ok) return unusable(pinned.problem);
  return verify(inputs, pinned?.keys);
}

const SingleReceiptSchema = z.union([
  z.object({ receipt: z.unknown().refine((receipt) => typeof receipt === 'object' && receipt !== null) }),
  z.object({ payloadType: z.string() }).loose(),
]);

const ChainSchema = z.array(ReceiptExportSchema.loose()).min(1);

async function verify(inputs: readonly unknown[], pinned: TrustedKeys | undefined): Promise<Report> {
  const parts = ChainSchema.safeParse(inputs);
  if (parts.success) return verifySession(parts.data, pinned);
  if (inputs.length > 1) return unusable('several files have to be the parts of one session');
  const single = SingleReceiptSchema.safeParse(inputs[0]);
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
  parts: z.infer<typeof ChainSchema>,
  pinned: TrustedKeys | undefined,
): Promise<Report> {
  const sessionId = parts[0]?.session_id ?? '';
  if (parts.some((part) => part.session_id !== sessionId)) {
    return unusable('several files have to be the parts of one session');
  }
  const receipts = parts.flatMap((part) => part.receipts);
  const keys = {
    edge: parts.flatMap((part) => part.keys.edge),
    hosts: parts.flatMap((part) => part.keys.hosts),
  };
  const verified = await verifyChain(receipts, pinned ?? keys, sessionId);
  if (!verified.ok) return refused(`receipt ${verified.seq ?? '?'}: ${verified.code}: ${verified.detail}`);
  const lines = verified.value.map(
    (receipt) => `valid  ${receipt.seq}  ${receipt.execution_id}  ${receipt.tool}  ${receipt.status}`,
  );
  const next = parts.at(-1)?.next_after ?? null;
  lines.push(
    next === null
      ? `chain of ${verified.value.length} receipts of ${sessionId} is whole`
      : `the first ${verified.value.length} receipts of ${sessionId} follow each other; more come after ${next}`,
  );
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
