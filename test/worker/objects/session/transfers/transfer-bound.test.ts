import { expect, test } from 'vitest';
import { TRANSFER_STALL_MS, TransferRequestSchema } from '../../../../../shared/transfer.ts';
import { answerBoundMs } from '../../../../../worker/objects/session/transfers/transfer-bound.ts';

const process_id = `prc_${'a'.repeat(22)}`;

test.each([
  [{ operation: 'process_stop', process_id, grace_ms: 5_000 }, 20_000],
  [{ operation: 'process_wait', process_id, until: { kind: 'exit' }, timeout_ms: 600_000 }, 615_000],
  [{ operation: 'process_list' }, TRANSFER_STALL_MS + 15_000],
  [{ operation: 'watch', path: 'YQ==' }, null],
])('the answer to %o is waited for %s ms', (request, bound) => {
  expect(answerBoundMs(TransferRequestSchema.parse(request))).toBe(bound);
});
