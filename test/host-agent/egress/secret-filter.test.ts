import { describe, expect, test } from 'vitest';
import { SecretFilter } from '../../../host-agent/egress/secret-filter.ts';

const header = (secret: string) => ({ host: 'a.test', header: 'x-key', secret, tls: true });

async function filtered(filter: SecretFilter, pieces: string[]): Promise<{ text: string; pieces: number }> {
  const body = filter.body();
  for (const piece of pieces) body.write(Buffer.from(piece, 'latin1'));
  body.end();
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return { text: Buffer.concat(chunks).toString('latin1'), pieces: chunks.length };
}

describe('a secret in what an upstream sends', () => {
  const filter = new SecretFilter([header('Bearer sk-0123456789'), header('aaaaaaab')]);
  const plain = 'x Bearer sk-0123456789 y aaaaaaaaaab z sk-01234567';
  const hidden = 'x Bearer ************* y aaa******** z sk-01234567';

  test('is hidden wherever it is cut, with every other byte as it was', async () => {
    for (let at = 0; at <= plain.length; at++) {
      expect((await filtered(filter, [plain.slice(0, at), plain.slice(at)])).text).toBe(hidden);
    }
    expect((await filtered(filter, plain.split(''))).text).toBe(hidden);
  });

  test('does not hold back what cannot be its beginning', async () => {
    const body = filter.body();
    body.write('data: one\n\n');
    expect(String(body.read())).toBe('data: one\n\n');
    body.write('data: sk-');
    expect(String(body.read())).toBe('data: ');
    body.write('other');
    expect(String(body.read())).toBe('sk-other');
  });

  test('leaves bytes alone that are no text', async () => {
    const bytes = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte)).join('');
    expect((await filtered(filter, [bytes, bytes])).text).toBe(bytes + bytes);
  });

  test('is hidden as JSON writes it', () => {
    const words = new SecretFilter([header('ab"cd\\ef/gh')]);
    const said = JSON.stringify({ key: 'ab"cd\\ef/gh' });
    expect(words.hide(said)).toBe(`{"key":"${'*'.repeat(13)}"}`);
    expect(words.hide(said.replaceAll('/', '\\/'))).toBe(`{"key":"${'*'.repeat(14)}"}`);
  });

  test('is hidden as an address writes it, and in base64 wherever it stands', () => {
    const secret = 'sk-0123+/é456789~ÿ?>';
    const words = new SecretFilter([header(secret)]);
    const address = encodeURIComponent(secret);
    expect(words.hide(address)).toBe('*'.repeat(address.length));
    expect(words.hide(address.toLowerCase())).toBe('*'.repeat(address.length));
    for (let before = 0; before < 6; before++) {
      for (const encoding of ['base64', 'base64url'] as const) {
        const text = Buffer.from(`${'x'.repeat(before)}${secret} and more`).toString(encoding);
        const shown = words.hide(text).replace(/\*+/, '');
        // At its edges at most a part of a byte is left.
        const around = Buffer.from(`${'x'.repeat(before)} and more`).toString(encoding);
        expect(shown.length).toBeLessThanOrEqual(around.length + 3);
        expect(words.hide(text)).toContain('*'.repeat(20));
      }
    }
  });

  test('is hidden also when its words are short, or as one of several', () => {
    expect(new SecretFilter([header('in words')]).hide('a in words one')).toBe('a ******** one');
    const two = new SecretFilter([header('key=AAAAAAAAAA, sign=BBBBBBBBBB')]);
    expect(two.hide('only sign=BBBBBBBBBB here')).toBe('only *************** here');
    expect(new SecretFilter([]).isIdle).toBe(true);
  });
});
