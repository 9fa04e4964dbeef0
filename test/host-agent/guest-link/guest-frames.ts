/** Frames as a guest would send them, and a guest that sends them by hand. */
import { PassThrough } from 'node:stream';
import { GuestLink } from '../../../host-agent/guest-link/guest-link.ts';

export function frameBytes(type: number, channel: number, payload: Uint8Array): Buffer {
  const frame = Buffer.alloc(9 + payload.byteLength);
  frame.writeUInt32BE(5 + payload.byteLength, 0);
  frame.writeUInt8(type, 4);
  frame.writeUInt32BE(channel, 5);
  frame.set(payload, 9);
  return frame;
}

export interface SentFrame {
  readonly type: number;
  readonly channel: number;
  readonly payload: Buffer;
}

export class HandMadeGuest {
  readonly #stdin = new PassThrough();
  readonly #stdout = new PassThrough();
  /** What the link said of the guest's sleep. */
  readonly wakes: string[] = [];
  readonly link = new GuestLink(
    { stdin: this.#stdin, stdout: this.#stdout },
    {
      standing: undefined,
      touch: () => void this.wakes.push('touch'),
      hold: () => {
        this.wakes.push('hold');
        return () => void this.wakes.push('let sleep');
      },
    },
  );
  /** What the host sent, without the frames already taken by `takeSent`. */
  #unread = Buffer.alloc(0);

  constructor() {
    this.#stdin.on('data', (bytes: Buffer) => {
      this.#unread = Buffer.concat([this.#unread, bytes]);
    });
  }

  /** Sends and waits until the host has taken it. */
  async send(type: number, channel: number, payload: Uint8Array = Buffer.alloc(0)): Promise<void> {
    await this.sendBytes(frameBytes(type, channel, payload));
  }

  async sendBytes(bytes: Uint8Array): Promise<void> {
    this.#stdout.write(bytes);
    await new Promise((resolve) => setImmediate(resolve));
  }

  async takeSent(): Promise<SentFrame[]> {
    await new Promise((resolve) => setImmediate(resolve));
    const frames: SentFrame[] = [];
    while (this.#unread.length >= 9) {
      const length = this.#unread.readUInt32BE(0);
      frames.push({
        type: this.#unread.readUInt8(4),
        channel: this.#unread.readUInt32BE(5),
        payload: this.#unread.subarray(9, 4 + length),
      });
      this.#unread = this.#unread.subarray(4 + length);
    }
    return frames;
  }

  end(): void {
    this.#stdout.end();
  }
}
