import { describe, expect, it } from 'vitest';
import {
  type KernelMessage,
  KernelMessages,
  MAX_KERNEL_MESSAGE_BYTES,
} from '../../../host-agent/guest-link/kernel-messages.ts';
import { lengthPrefixed } from '../../../host-agent/guest-link/length-prefixed.ts';
import { MAX_RESULT_PARTS_BYTES, MAX_VALUE_BYTES } from '../../../shared/limits.ts';

const MIB = 1024 * 1024;
const HEAD = {
  type: 'result',
  id: '1',
  status: 'ok',
  value: null,
  value_characters: null,
  error: null,
  results: [],
  exit_code: null,
  cpu_ms: 1,
};

function body(head: unknown, ...texts: (string | Buffer)[]): Buffer {
  const json = Buffer.from(typeof head === 'string' ? head : JSON.stringify(head));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(json.length, 0);
  return Buffer.concat([length, json, ...texts.map((text) => Buffer.from(text))]);
}

function read(message: Buffer) {
  const messages: KernelMessage[] = [];
  const reader = new KernelMessages((message) => {
    messages.push(message);
    return undefined;
  });
  const failure = reader.push(lengthPrefixed(message));
  return { messages, failure };
}

describe('KernelMessages', () => {
  it('cuts the texts out in their order', () => {
    const head = {
      ...HEAD,
      value: 3,
      error: { name: 'E', message: 2, traceback: 0 },
      results: [
        { mime: 'text/html', data: 1 },
        { mime: 'text/plain', data: 4 },
      ],
    };
    expect(read(body(head, '漢', 'é', 'h', '\u{1f600}'))).toEqual({
      failure: undefined,
      messages: [
        {
          type: 'result',
          id: '1',
          status: 'ok',
          value: '漢',
          error: { name: 'E', message: 'é', traceback: '' },
          results: [
            { mime: 'text/html', data: 'h' },
            { mime: 'text/plain', data: '\u{1f600}' },
          ],
          exitCode: null,
          cpuMs: 1,
        },
      ],
    });
  });

  it('takes a value and results at their limits', () => {
    const head = {
      ...HEAD,
      value: MAX_VALUE_BYTES,
      results: [{ mime: 'text/plain', data: MAX_RESULT_PARTS_BYTES }],
    };
    const message = body(head, Buffer.alloc(MAX_VALUE_BYTES, 'v'), Buffer.alloc(MAX_RESULT_PARTS_BYTES, 'r'));
    expect(message.length).toBeLessThan(MAX_KERNEL_MESSAGE_BYTES);
    expect(read(message).messages).toHaveLength(1);
  });

  it('marks a value that was cut, within its limit', () => {
    const marked = (value: string, characters: number) => {
      const head = { ...HEAD, value: Buffer.byteLength(value), value_characters: characters };
      const [message] = read(body(head, value)).messages;
      return message?.type === 'result' ? message.value : undefined;
    };
    expect(marked('a\u{1f600}b', 2_000_000)).toBe('a\u{1f600}b… [3 of 2,000,000 characters]');
    const full = marked('\u{1f600}'.repeat(MAX_VALUE_BYTES / 4), 9_999_999);
    expect(full).toMatch(/… \[[\d,]+ of 9,999,999 characters\]$/);
    expect(Buffer.byteLength(full ?? '')).toBeLessThanOrEqual(MAX_VALUE_BYTES);
  });

  it.each([
    ['no head', Buffer.from('')],
    ['a head longer than the message', Buffer.from('000000ff7b', 'hex')],
    ['a head beyond its limit', body(`{"type":"result","x":[${'[],'.repeat(30_000)}[]]}`)],
    ['a head that is not JSON', body('{')],
    ['a head of another shape', body({ ...HEAD, value: 'text' })],
    ['a text that is shorter than announced', body({ ...HEAD, value: 5 }, 'four')],
    ['bytes that belong to no text', body({ ...HEAD, value: 1 }, 'two')],
    ['a text that is not UTF-8', body({ ...HEAD, value: 1 }, Buffer.from([0xff]))],
    ['a value beyond its limit', body({ ...HEAD, value: MIB + 1 }, Buffer.alloc(MIB + 1, 'v'))],
  ])('refuses %s', (_what, message) => {
    expect(read(message)).toMatchObject({ messages: [], failure: { reason: 'protocol' } });
  });

  it('refuses a longer message by its length alone', () => {
    const reader = new KernelMessages(() => undefined);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(MAX_KERNEL_MESSAGE_BYTES + 1, 0);
    expect(reader.push(length)).toMatchObject({ reason: 'protocol' });
  });

  it('looks at nothing more after a message that cannot come now', () => {
    let heard = 0;
    const reader = new KernelMessages(() => {
      heard++;
      return { reason: 'protocol', message: 'not now' };
    });
    const ready = lengthPrefixed(body({ type: 'ready', version: '3' }));
    expect(reader.push(Buffer.concat([ready, ready]))).toMatchObject({ message: 'not now' });
    expect(reader.push(ready)).toBeUndefined();
    expect(heard).toBe(1);
  });
});
