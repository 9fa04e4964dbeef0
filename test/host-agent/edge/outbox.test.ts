import { describe, expect, test } from 'vitest';
import { Outbox } from '../../../host-agent/edge/outbox.ts';
import { framesOf, MAX_BUNDLED_FRAMES } from '../../../shared/bundle.ts';
import { MAX_FRAME_BYTES } from '../../../shared/limits.ts';

function outbox(bundles: boolean): { box: Outbox; messages: Buffer[] } {
  const messages: Buffer[] = [];
  const box = new Outbox({ bundles, write: (parts) => void messages.push(Buffer.concat(parts)) });
  return { box, messages };
}

const head = (text: string): Buffer => Buffer.from(`\u0000\u0002${text}`);

function add(box: Outbox, sizes: readonly number[]): Buffer[] {
  return sizes.map((size, index) => {
    const payload = Buffer.alloc(size, index);
    box.add(head('{}'), payload);
    return Buffer.concat([head('{}'), payload]);
  });
}

function framesIn(messages: readonly Buffer[]): Buffer[] {
  return messages.flatMap((message) => {
    const frames = framesOf(Uint8Array.from(message).buffer);
    if (!frames.ok) throw new Error(frames.detail);
    return frames.value.map((frame) => Buffer.from(frame));
  });
}

describe('an outbox', () => {
  test('sends what one turn brings as one message, at the end of the turn', async () => {
    const { box, messages } = outbox(true);
    const sent = add(box, [0, 5, 1000]);
    expect(messages).toEqual([]);
    expect(box.waitingBytes).toBe(1017);
    await Promise.resolve();
    sent.push(...add(box, [7]));
    await new Promise<void>((resolve) => process.nextTick(resolve));
    expect(messages).toHaveLength(1);
    expect(framesIn(messages)).toEqual(sent);
    expect(box.waitingBytes).toBe(0);
  });

  test('sends a frame that is alone as it is', () => {
    const { box, messages } = outbox(true);
    const sent = add(box, [5]);
    box.flush();
    expect(messages).toEqual(sent);
  });

  test('sends each frame by itself where the edge takes no bundles', () => {
    const { box, messages } = outbox(false);
    const sent = add(box, [5, 6, 7]);
    box.flush();
    expect(messages).toEqual(sent);
  });

  test.each([
    ['many small ones', Array.from({ length: 3 * MAX_BUNDLED_FRAMES }, () => 3)],
    ['some of 20,000 bytes', Array.from({ length: 20 }, () => 20_000)],
    ['long ones between short ones', [5, 65_536, 6, 196_608, 7, 8, 65_000]],
  ])('keeps the order and the bounds of messages: %s', (_, sizes) => {
    const { box, messages } = outbox(true);
    const sent = add(box, sizes);
    box.flush();
    expect(framesIn(messages)).toEqual(sent);
    expect(messages.length).toBeLessThan(sent.length);
    for (const message of messages) expect(message.length).toBeLessThanOrEqual(MAX_FRAME_BYTES);
  });
});
