import { describe, expect, it } from 'vitest';
import {
  INPUT_WINDOW_BYTES,
  InputWindow,
  MAX_WAITING_BYTES,
  MAX_WAITING_WRITES,
} from '../../../host-agent/guest-link/input-window.ts';

/** One to which the guest has given all the credit that it gives at first, and no more. */
function used(): InputWindow {
  const window = new InputWindow(() => undefined);
  void window.write(new Uint8Array(INPUT_WINDOW_BYTES));
  return window;
}

describe('input that waits for a program', () => {
  it('is bounded in bytes', async () => {
    const window = used();
    void window.write(new Uint8Array(MAX_WAITING_BYTES));
    expect(await window.write(new Uint8Array(1))).toMatchObject({ ok: false, failure: { reason: 'limit' } });
  });

  it('is bounded in writes, however small each is, and takes more when some have gone', async () => {
    const window = used();
    const waiting = Array.from({ length: MAX_WAITING_WRITES }, () => window.write(new Uint8Array(1)));
    expect(await window.write(new Uint8Array(1))).toMatchObject({ ok: false, failure: { reason: 'limit' } });
    expect(window.grant(1)).toBe(true);
    expect(await waiting[0]).toMatchObject({ ok: true });
    const next = window.write(new Uint8Array(1));
    expect(window.grant(MAX_WAITING_WRITES)).toBe(true);
    expect(await next).toMatchObject({ ok: true });
  });
});
