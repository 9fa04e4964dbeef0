/** Programs of a session as they stood at a checkpoint of it, and how they go on in a session that is made of that. */
import * as z from 'zod';
import { CallNumberSchema } from '../../../../shared/code-mode.ts';
import { ExecutionIdSchema } from '../../../../shared/ids.ts';
import type { CarriedExecution } from '../../../../shared/snapshot.ts';
import { CalledAsSchema, type ExecutionRecord } from '../rows/records.ts';
import { ProgramFactsSchema } from './port.ts';
import { type CallRow, MadeInnerCallSchema, numberOf, type ProgramStore } from './store.ts';

const ForkedCallSchema = z.strictObject({
  call: CallNumberSchema,
  name: z.string(),
  /** JSON; null where they are no longer kept. */
  arguments: z.string().nullable(),
  argumentsBytes: z.number(),
  /** Of one that the caller of the program executes. */
  pending: z.strictObject({ made: MadeInnerCallSchema.nullable() }).nullable(),
  /** Of any other: whether it does no harm to make it again. */
  mayRepeat: z.boolean(),
});
export type ForkedCall = z.infer<typeof ForkedCallSchema>;

export const ForkedProgramSchema = z.strictObject({
  executionId: ExecutionIdSchema,
  tool: z.string(),
  toolVersion: z.string(),
  calledAs: CalledAsSchema.nullable(),
  argsSha256: z.string(),
  timeoutMs: z.number(),
  leftMs: z.number(),
  stdin: z.boolean(),
  encoding: z.enum(['utf-8', 'base64']),
  requestId: z.string(),
  facts: ProgramFactsSchema,
  used: z.strictObject({ calls: z.number(), writes: z.number(), bytes: z.number() }),
  /** Those that had no answer. */
  calls: z.array(ForkedCallSchema),
});
export type ForkedProgram = z.infer<typeof ForkedProgramSchema>;

/** Undefined for what is no program, or waits for nothing. */
export function forkedProgram(
  store: ProgramStore,
  record: ExecutionRecord,
  { open_calls: openCalls = [], timeout_left_ms: leftMs }: CarriedExecution,
): ForkedProgram | undefined {
  const program = store.find(record.n);
  const rows = openCalls.flatMap((call) => store.call(record.n, call) ?? []);
  if (program === undefined || rows.length === 0) return undefined;
  const { executionId, tool, toolVersion, calledAs, argsSha256, timeoutMs } = record;
  const { stdin, encoding, requestId } = record;
  const { facts, calls, writes, bytes } = program;
  return {
    executionId,
    tool,
    toolVersion,
    calledAs,
    argsSha256,
    timeoutMs,
    leftMs,
    stdin,
    encoding,
    requestId,
    facts: { ...facts, parentProgramId: executionId },
    used: { calls, writes, bytes },
    calls: rows.map(forkedCall),
  };
}

function forkedCall(row: CallRow): ForkedCall {
  return {
    call: numberOf(row),
    name: row.name,
    arguments: row.arguments,
    argumentsBytes: row.argumentsBytes,
    pending: row.shown === null ? null : { made: row.made },
    mayRepeat: row.mayRepeat || row.status === 'awaiting_approval',
  };
}
