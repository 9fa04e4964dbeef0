/** What others may ask of the object that knows the used proofs of one key. */
import type { Outcome } from '../../../shared/errors.ts';

export interface ProofsPort {
  /** True for the first who brings the proof with this id, false for every other, wherever they come in. */
  take(proofId: string): Promise<Outcome<boolean>>;
}
