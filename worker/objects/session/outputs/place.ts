/** Where long outputs are in R2, and how a chunk of one is named and sealed. */
import type { StreamName } from '../../../../shared/execution.ts';
import type { StoredChunk } from './port.ts';

export interface OutputOwner {
  tenant: string;
  sessionId: string;
}

export function outputsPrefix({ tenant, sessionId }: OutputOwner, executionId?: string): string {
  const ofSession = `outputs/${tenant}/${sessionId}/`;
  return executionId === undefined ? ofSession : `${ofSession}${executionId}/`;
}

/** Its length is in the name too: what came late of a chunk that was cut elsewhere never takes the place of another. */
export function chunkName(stream: StreamName, { offset, length }: StoredChunk): string {
  return `${stream}/${offset}-${length}`;
}
