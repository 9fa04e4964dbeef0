/** Puts the parts of a command together: in order, of one grant, and bounded. */

import type * as z from 'zod';
import { concatBytes } from '../../shared/encoding.ts';
import type { CommandFrameSchema } from '../../shared/frames.ts';
import { MAX_ARGUMENTS_BYTES } from '../../shared/limits.ts';

export interface Command {
  grant: string;
  payload: Uint8Array;
  /** Of the request that it is for, where the edge says so. */
  requestId?: string | undefined;
}

export type Assembled = { command: Command } | { violation: string } | { waiting: true };

export class CommandAssembler {
  #grant = '';
  #parts: Uint8Array[] = [];
  #bytes = 0;
  #expectedParts = 0;

  /** A partial command does not outlive its connection. */
  reset(): void {
    this.#grant = '';
    this.#parts = [];
    this.#bytes = 0;
    this.#expectedParts = 0;
  }

  add(header: z.infer<typeof CommandFrameSchema>, payload: Uint8Array): Assembled {
    if (this.#parts.length === 0) {
      this.#grant = header.grant;
      this.#expectedParts = header.parts;
    }
    if (header.part !== this.#parts.length || header.parts !== this.#expectedParts) {
      return this.#violation('parts of a command out of order');
    }
    if (header.grant !== this.#grant) return this.#violation('parts of a command with different grants');
    this.#bytes += payload.length;
    if (this.#bytes > MAX_ARGUMENTS_BYTES) {
      return this.#violation(`a command of more than ${MAX_ARGUMENTS_BYTES} bytes`);
    }
    this.#parts.push(payload);
    if (this.#parts.length < this.#expectedParts) return { waiting: true };
    const command = { grant: this.#grant, payload: concatBytes(this.#parts), requestId: header.request_id };
    this.reset();
    return { command };
  }

  #violation(violation: string): Assembled {
    this.reset();
    return { violation };
  }
}
