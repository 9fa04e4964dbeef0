/** What the other side of a program says, message by message. */
import { MESSAGE_BYTES, MessageDecoder } from '../../shared/program.ts';
import type { Incoming } from './incoming.ts';

export interface MessageTakers {
  bytes: (bytes: Uint8Array) => Promise<unknown>;
  /** False where it is none that is known. */
  text: (text: Uint8Array) => boolean;
}

/** Settles when the other side has left, or has said what is no message. */
export async function takeMessages(incoming: Incoming, takers: MessageTakers): Promise<void> {
  const decoder = new MessageDecoder();
  try {
    for await (const bytes of incoming.content(null)) {
      const messages = decoder.push(bytes);
      if (messages === undefined) return;
      for (const message of messages) {
        if (message.kind === MESSAGE_BYTES) await takers.bytes(message.bytes);
        else if (!takers.text(message.bytes)) return;
      }
    }
  } catch {
    // The transfer was cut.
  }
}
