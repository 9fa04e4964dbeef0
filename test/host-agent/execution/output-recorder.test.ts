import { hash, randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { OutputRecorder } from '../../../host-agent/execution/output-recorder.ts';
import type { OutgoingFrame, UpFrame, Uplink } from '../../../host-agent/execution/uplink.ts';
import { incompleteSuffixLength } from '../../../host-agent/execution/utf8-edge.ts';
import type { StreamName } from '../../../shared/execution.ts';
import type { Relay } from '../../../shared/grant.ts';
import { newId } from '../../../shared/ids.ts';
import {
  INLINE_HEAD_BYTES,
  INLINE_TAIL_BYTES,
  MAX_STORED_OUTPUT_BYTES,
  OUTPUT_FRAME_BYTES,
} from '../../../shared/limits.ts';

const executionId = newId('exe');

/** A link that takes everything while it is open, and nothing while it is shut. */
class RecordedUplink implements Uplink {
  readonly sent: OutgoingFrame[] = [];
  readonly isOverfull = false;
  #isShut = false;
  #waiting: (() => void)[] = [];

  shut(): void {
    this.#isShut = true;
  }

  open(): void {
    this.#isShut = false;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  send(frame: UpFrame, payload: Uint8Array = new Uint8Array(0)): number {
    this.sent.push({ frame, payload });
    return this.sent.length;
  }

  hasRoom(): boolean {
    return true;
  }

  waitForRoom(_bytes: number, _executionId: string, signal?: AbortSignal): Promise<void> {
    if (!this.#isShut) return Promise.resolve();
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      signal?.addEventListener('abort', () => resolve());
    });
  }

  whenAcknowledged(): Promise<void> {
    return Promise.resolve();
  }

  unacknowledgedOf(): [] {
    return [];
  }
}

function record(relay: Relay): { uplink: RecordedUplink; recorder: OutputRecorder } {
  const uplink = new RecordedUplink();
  return { uplink, recorder: new OutputRecorder({ executionId, relay, uplink }) };
}

interface Assembled {
  output: Buffer;
  tail: Buffer;
  tailOffset: number | undefined;
  pieces: Buffer[];
}

function assemble(frames: OutgoingFrame[], stream: StreamName): Assembled {
  const result: Assembled = {
    output: Buffer.alloc(0),
    tail: Buffer.alloc(0),
    tailOffset: undefined,
    pieces: [],
  };
  for (const { frame, payload } of frames) {
    if ((frame.type !== 'output' && frame.type !== 'tail') || frame.stream !== stream) continue;
    if (frame.type === 'output') {
      expect(frame.offset).toBe(result.output.length);
      result.output = Buffer.concat([result.output, payload]);
      result.pieces.push(Buffer.from(payload));
    } else {
      result.tailOffset ??= frame.offset;
      expect(frame.offset).toBe(result.tailOffset + result.tail.length);
      result.tail = Buffer.concat([result.tail, payload]);
    }
  }
  return result;
}

const isUtf8 = (bytes: Uint8Array): boolean => {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
};

describe('recorded output', () => {
  test('that is kept is sent as far as it is stored, then counted, with its end', async () => {
    const { uplink, recorder } = record('kept');
    const block = Buffer.alloc(1024 * 1024, 'x');
    const blocks = MAX_STORED_OUTPUT_BYTES / block.length + 3;
    let waits = 0;
    for (let n = 0; n < blocks; n += 1) {
      let isWaiting = true;
      const written = recorder.write('stdout', block).then(() => {
        isWaiting = false;
      });
      await Promise.resolve();
      if (isWaiting) waits += 1;
      await written;
    }
    // A program waits for the link up to there, and never beyond.
    expect(waits).toBeGreaterThan(0);
    const recorded = recorder.finish();
    const frames = [...uplink.sent, ...recorded.frames];
    const sent = frames.filter(({ frame }) => frame.type === 'output');
    expect(sent.reduce((sum, { payload }) => sum + payload.length, 0)).toBe(MAX_STORED_OUTPUT_BYTES);
    expect(recorded.stdout).toMatchObject({ bytes: blocks * block.length, truncated: true });
    const { tail, tailOffset } = assemble(
      frames.filter(({ frame }) => frame.type === 'tail'),
      'stdout',
    );
    expect((tailOffset ?? 0) + tail.length).toBe(blocks * block.length);
  }, 60_000);

  test('of a short program is whole, with true totals and digests', async () => {
    const { uplink, recorder } = record('full');
    await recorder.write('stdout', Buffer.from('one '));
    await recorder.write('stderr', Buffer.from('warning'));
    await recorder.write('stdout', Buffer.from('two'));
    const recorded = recorder.finish();
    const frames = [...uplink.sent, ...recorded.frames];
    expect(assemble(frames, 'stdout').output.toString()).toBe('one two');
    expect(assemble(frames, 'stderr').output.toString()).toBe('warning');
    expect(recorded.stdout).toEqual({ sha256: hash('sha256', 'one two'), bytes: 7, truncated: false });
    expect(recorded.stderr.bytes).toBe(7);
  });

  test('of nothing has no frames', () => {
    const { recorder } = record('bounded');
    const { frames, stdout } = recorder.finish();
    expect(frames).toEqual([]);
    expect(stdout).toEqual({ sha256: hash('sha256', ''), bytes: 0, truncated: false });
  });

  test('R12 of single bytes is cut between characters only', async () => {
    const { uplink, recorder } = record('full');
    const text = Buffer.from('aé漢😀\n');
    for (const [index, byte] of text.entries()) {
      const sentBefore = assemble(uplink.sent, 'stdout').output.length;
      await recorder.write('stdout', Uint8Array.of(byte));
      const whole = index + 1 - incompleteSuffixLength(text.subarray(0, index + 1));
      if (whole === sentBefore) continue;
      await expect.poll(() => assemble(uplink.sent, 'stdout').output.length, { interval: 1 }).toBe(whole);
    }
    const { output, pieces } = assemble([...uplink.sent, ...recorder.finish().frames], 'stdout');
    expect(output.equals(text)).toBe(true);
    expect(pieces.map(String)).toEqual(['a', 'é', '漢', '😀', '\n']);
    expect(pieces.every(isUtf8)).toBe(true);
  });

  test('R21 that is not UTF-8 arrives byte by byte as it was, the cut tail too', async () => {
    const { uplink, recorder } = record('full');
    const bytes = Buffer.from([0x41, 0xff, 0xfe, 0x42, 0xe2, 0x82]);
    await recorder.write('stdout', bytes);
    const { output } = assemble([...uplink.sent, ...recorder.finish().frames], 'stdout');
    expect(output.equals(bytes)).toBe(true);
  });

  test.each(['full', 'bounded'] as const)(
    'of random bytes longer than head and tail keeps both exactly (%s)',
    async (relay) => {
      const { uplink, recorder } = record(relay);
      const bytes = randomBytes(INLINE_HEAD_BYTES + INLINE_TAIL_BYTES + 300_001);
      for (let offset = 0; offset < bytes.length; offset += 50_021) {
        await recorder.write('stdout', bytes.subarray(offset, offset + 50_021));
      }
      const recorded = recorder.finish();
      const { output, tail, tailOffset } = assemble([...uplink.sent, ...recorded.frames], 'stdout');
      expect(recorded.stdout).toEqual({
        sha256: hash('sha256', bytes),
        bytes: bytes.length,
        truncated: true,
      });
      expect(bytes.subarray(tailOffset).equals(tail)).toBe(true);
      expect(tail.length).toBeGreaterThan(INLINE_TAIL_BYTES - 4);
      expect(bytes.subarray(0, output.length).equals(output)).toBe(true);
      if (relay === 'full') expect(output.length).toBe(bytes.length);
      else expect(output.length).toBeGreaterThan(INLINE_HEAD_BYTES - 4);
    },
  );

  test('a little longer than the head is not truncated: tail follows on head', async () => {
    const { uplink, recorder } = record('bounded');
    const bytes = Buffer.from('漢'.repeat(Math.ceil(INLINE_HEAD_BYTES / 3) + 1000));
    await recorder.write('stdout', bytes);
    const recorded = recorder.finish();
    const { output, tail, tailOffset } = assemble([...uplink.sent, ...recorded.frames], 'stdout');
    expect(tailOffset).toBe(output.length);
    expect(output.length).toBeLessThanOrEqual(INLINE_HEAD_BYTES);
    expect(isUtf8(output)).toBe(true);
    expect(Buffer.concat([output, tail]).equals(bytes)).toBe(true);
    expect(recorded.stdout.truncated).toBe(false);
  });

  test('that is truncated has a head and a tail of whole characters', async () => {
    const { uplink, recorder } = record('bounded');
    await recorder.write('stdout', Buffer.from(`x${'😀'.repeat(400_000)}`));
    const { output, tail } = assemble([...uplink.sent, ...recorder.finish().frames], 'stdout');
    expect(isUtf8(output)).toBe(true);
    expect(isUtf8(tail)).toBe(true);
  });

  test('of lead bytes only, which are never a character, comes through all the same', async () => {
    const { uplink, recorder } = record('full');
    const bytes = Buffer.alloc(INLINE_HEAD_BYTES + 100_000, 0xe2);
    await recorder.write('stdout', bytes);
    const { output } = assemble([...uplink.sent, ...recorder.finish().frames], 'stdout');
    expect(output.equals(bytes)).toBe(true);
  });

  test('waits for a link that takes nothing, and is whole when the program ended meanwhile', async () => {
    const { uplink, recorder } = record('full');
    uplink.shut();
    let taken = 0;
    const writes = Array.from({ length: 8 }, (_, index) =>
      recorder.write('stdout', Buffer.alloc(OUTPUT_FRAME_BYTES, index)).then(() => {
        taken += 1;
      }),
    );
    await Promise.race(writes);
    expect(taken).toBeLessThan(3);
    expect(uplink.sent).toHaveLength(0);
    const { frames } = recorder.finish();
    await Promise.all(writes);
    expect(assemble(frames, 'stdout').output).toHaveLength(8 * OUTPUT_FRAME_BYTES);
  });

  test('goes on when the link takes again', async () => {
    const { uplink, recorder } = record('full');
    uplink.shut();
    const writes = Array.from({ length: 8 }, () =>
      recorder.write('stdout', Buffer.alloc(OUTPUT_FRAME_BYTES)),
    );
    uplink.open();
    await Promise.all(writes);
    expect(uplink.sent.length).toBeGreaterThan(0);
    recorder.finish();
  });

  test('of a quiet program is sent without waiting for more', async () => {
    const { uplink, recorder } = record('full');
    await recorder.write('stdout', Buffer.from('prompt> '));
    await expect.poll(() => uplink.sent.length).toBe(1);
    recorder.finish();
  });

  test('after the end is nobody’s', async () => {
    const { uplink, recorder } = record('full');
    recorder.finish();
    await recorder.write('stdout', Buffer.from('late'));
    expect(uplink.sent).toHaveLength(0);
  });
});
