/**
 * `npm run verify -- FILE... [--keys KEYS]`: checks a receipt or a session's chain offline, with public keys only. A chain
 * that came in several parts is given as its files in order, or as one file with their receipts joined.
 */
import { readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { EDGE_RECEIPT_PAYLOAD_TYPE, type EdgeReceipt } from '../shared/edge-receipt.ts';
import { verifyEdgeReceipt } from '../shared/edge-receipt-verify.ts';
import type { Receipt } from '../shared/receipt.ts';
import { ReceiptExportSchema, verifyReceipt, verifySessionReceipts } from '../shared/receipt-verify.ts';
import { type TrustedKeys, TrustedKeysSchema } from '../shared/verification.ts';

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
  if (EdgeSignedSchema.safeParse(envelope).success) {
    const verified = await verifyEdgeReceipt(envelope, pinned);
    return verified.ok
      ? valid(verified.value.value, `the edge ${verified.value.value.issuer}`)
      : refused(`${verified.code}: ${verified.detail}`);
  }
  const verified = await verifyReceipt(envelope, pinned);
  return verified.ok
    ? withNotes(
        valid(verified.value.receipt, verified.value.receipt.host_id),
        notesOf(verified.value.receipt),
      )
    : refused(`${verified.code}: ${verified.detail}`);
}

const EdgeSignedSchema = z.object({ payloadType: z.literal(EDGE_RECEIPT_PAYLOAD_TYPE) }).loose();

function valid(receipt: { execution_id: string; tool: string; status: string }, signer: string): Report {
  const { execution_id, tool, status } = receipt;
  return { exitCode: 0, lines: [`valid  ${execution_id}  ${tool}  ${status}  by ${signer}`] };
}

function withNotes(report: Report, notes: string[]): Report {
  return { ...report, lines: [...report.lines, ...notes] };
}

/** What else the host signed of it. */
function notesOf({ artifacts, clock_ahead_ms: aheadMs }: Receipt): string[] {
  const skew = aheadMs === undefined ? [] : [`       note: the clock of its host was ${aheadMs} ms ahead`];
  return [
    ...artifacts.map(({ path, sha256, bytes }) => `       ${path}  ${bytes} bytes  sha256:${sha256}`),
    ...skew,
  ];
}

async function verifySession(
  parts: z.infer<typeof ChainSchema>,
  pinned: TrustedKeys | undefined,
): Promise<Report> {
  const sessionId = parts[0]?.session_id ?? '';
  if (parts.some((part) => part.session_id !== sessionId)) {
    return unusable('several files have to be the parts of one session');
  }
  const keys = {
    edge: parts.flatMap((part) => part.keys.edge),
    hosts: parts.flatMap((part) => part.keys.hosts),
  };
  const last = parts.at(-1);
  const next = last?.next_after ?? null;
  const given = {
    sessionId,
    receipts: parts.flatMap((part) => part.receipts),
    edgeReceipts: parts.flatMap((part) => part.edge_receipts),
    more: next !== null,
  };
  const verified = await verifySessionReceipts(given, pinned ?? keys);
  if (!verified.ok) {
    const which = verified.chain === 'edge' ? 'edge receipt' : 'receipt';
    return refused(`${which} ${verified.seq ?? '?'}: ${verified.code}: ${verified.detail}`);
  }
  const { receipts, edgeReceipts } = verified;
  const lines = [
    ...receipts.flatMap((receipt) => [line('', receipt), ...notesOf(receipt)]),
    ...edgeReceipts.map(ofEdge),
  ];
  lines.push(endOf('receipts', { sessionId, count: receipts.length, next }));
  const nextOfEdge = last?.next_edge_after ?? null;
  if (edgeReceipts.length > 0 || nextOfEdge !== null) {
    lines.push(endOf('receipts of the edge', { sessionId, count: edgeReceipts.length, next: nextOfEdge }));
  }
  if (pinned === undefined) {
    lines.push('note: the keys came with the file; give --keys with keys you trust to be sure who signed');
  }
  return { exitCode: 0, lines };
}

type Line = Pick<EdgeReceipt, 'seq' | 'execution_id' | 'tool' | 'status'>;

function line(mark: string, { seq, execution_id, tool, status }: Line): string {
  return `valid  ${mark}${seq}  ${execution_id}  ${tool}  ${status}`;
}

function ofEdge(receipt: EdgeReceipt): string {
  const { parent } = receipt;
  const made = parent === null ? '' : `  call ${parent.call} of ${parent.execution_id}`;
  return line('edge ', receipt) + made;
}

function endOf(
  what: string,
  { sessionId, count, next }: { sessionId: string; count: number; next: number | null },
): string {
  return next === null
    ? `chain of ${count} ${what} of ${sessionId} is whole`
    : `the first ${count} ${what} of ${sessionId} follow each other; more come after ${next}`;
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
