import { describe, expect, test } from 'vitest';
import { boundedError, resultParts } from '../../../host-agent/execution/result-parts.ts';
import type { ToolOutcome } from '../../../host-agent/sandbox/port.ts';
import { concatBytes } from '../../../shared/encoding.ts';
import { newId } from '../../../shared/ids.ts';
import { MAX_FRAME_PAYLOAD_BYTES, MAX_RESULT_PARTS_BYTES, MAX_VALUE_BYTES } from '../../../shared/limits.ts';

const executionId = newId('exe');
const OUTCOME: ToolOutcome = {
  status: 'succeeded',
  exitCode: 0,
  signal: null,
  error: null,
  value: null,
  structured: null,
  results: [],
  stateLost: false,
  usage: { cpuMs: 0, peakMemoryBytes: 0, egressBytes: 0 },
};

function parts(outcome: Partial<ToolOutcome>): { key: string; last: boolean; bytes: Uint8Array }[] {
  return resultParts(executionId, { ...OUTCOME, ...outcome }).map(({ frame, payload }) => {
    if (frame.type !== 'part') throw new Error('not a part');
    return { key: `${frame.field}:${frame.index}:${frame.mime}`, last: frame.last, bytes: payload };
  });
}

describe('the parts of a result', () => {
  test('of nothing are none', () => {
    expect(parts({})).toEqual([]);
  });

  test('carry value, structured answer and rich results', () => {
    const sent = parts({
      value: 'é',
      structured: { entries: [] },
      results: [{ mime: 'image/png', data: 'AA==' }],
    });
    expect(sent.map(({ key }) => key)).toEqual([
      'value:0:text/plain',
      'structured:0:application/json',
      'result:0:image/png',
    ]);
    expect(Buffer.from(sent[1]?.bytes ?? []).toString()).toBe('{"entries":[]}');
  });

  test('tell an empty value from none', () => {
    expect(parts({ value: '' })).toMatchObject([{ key: 'value:0:text/plain', last: true }]);
  });

  test('longer than a frame come in pieces, the last one marked', () => {
    const data = 'x'.repeat(2 * MAX_FRAME_PAYLOAD_BYTES + 5);
    const sent = parts({ results: [{ mime: 'text/plain', data }] });
    expect(sent.map(({ last }) => last)).toEqual([false, false, true]);
    expect(Buffer.from(concatBytes(sent.map(({ bytes }) => bytes))).toString()).toBe(data);
  });

  test('say what was left out because it does not fit, and keep the smaller ones (K11)', () => {
    const big = { mime: 'image/png', data: 'x'.repeat(6 * 1024 * 1024) };
    const small = { mime: 'text/html', data: 'y' };
    const sent = parts({ results: [big, big, small] });
    expect([...new Set(sent.map(({ key }) => key))]).toEqual([
      'result:0:image/png',
      'result:1:text/plain',
      'result:2:text/html',
    ]);
    const note = sent.find(({ key }) => key.startsWith('result:1'));
    expect(Buffer.from(note?.bytes ?? []).toString()).toBe(
      '[image/png of 6291456 bytes left out: value and results have at most 8388608 bytes together]',
    );
  });

  test('never have more than their cap together, notes and all', () => {
    const big = { mime: 'm'.repeat(200), data: 'x'.repeat(MAX_RESULT_PARTS_BYTES) };
    const sent = parts({
      value: 'v'.repeat(MAX_VALUE_BYTES),
      results: [{ mime: 'text/plain', data: 'x'.repeat(7_000_000) }, ...Array(300).fill(big)],
    });
    const total = sent.reduce((sum, { bytes }) => sum + bytes.length, 0);
    expect(total).toBeLessThanOrEqual(MAX_RESULT_PARTS_BYTES);
    expect(sent.at(-1)?.key).toBe('result:255:text/plain');
    expect(Buffer.from(sent.at(-1)?.bytes ?? []).toString()).toBe(
      '[46 results left out: a call has at most 256]',
    );
  });

  test('cut a value at its cap, at a character, and say so (K11)', () => {
    const sent = parts({ value: '漢'.repeat(MAX_VALUE_BYTES) });
    const bytes = concatBytes(sent.map((part) => part.bytes));
    expect(bytes.length).toBeGreaterThan(MAX_VALUE_BYTES - 64);
    expect(bytes.length).toBeLessThanOrEqual(MAX_VALUE_BYTES);
    expect(new TextDecoder('utf-8', { fatal: true }).decode(bytes)).toMatch(
      /漢… \[349,504 of 1,048,576 characters\]$/,
    );
  });
});

describe('an error', () => {
  test('that is short stays as it is', () => {
    const error = { name: 'ValueError', message: 'é\n☃', traceback: 'line 1' };
    expect(boundedError(error)).toEqual(error);
    expect(boundedError(null)).toBeNull();
  });

  test('fits a frame header whatever it holds, and its traceback keeps the end', () => {
    const error = {
      name: 'n'.repeat(1e6),
      message: '\u0001'.repeat(1e6),
      traceback: `${'漢"'.repeat(1e6)}end`,
    };
    const bounded = boundedError(error);
    expect(Buffer.byteLength(JSON.stringify(bounded))).toBeLessThan(40_000);
    expect(bounded?.traceback.endsWith('end')).toBe(true);
    expect(bounded?.message.startsWith('\u0001')).toBe(true);
  });
});
