/** How long the answer to one request for files, terminals or background processes may take. */
import { TRANSFER_STALL_MS, type TransferRequest } from '../../../../shared/transfer.ts';

/** Beyond what a host takes for it at the most. */
const ANSWER_GRACE_MS = 15_000;

/** When the host must have answered at the latest; null for what lasts as long as somebody reads or moves bytes. */
export function answerBoundMs(request: TransferRequest): number | null {
  switch (request.operation) {
    case 'process_wait':
      return request.timeout_ms + ANSWER_GRACE_MS;
    case 'process_stop':
      return request.grace_ms + ANSWER_GRACE_MS;
    case 'process_start':
    case 'process_input':
    case 'process_list':
      return TRANSFER_STALL_MS + ANSWER_GRACE_MS;
    default:
      return null;
  }
}
