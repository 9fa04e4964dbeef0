import { describe, expect, test } from 'vitest';
import { addressFault, filledAddress, templateFault } from '../../../worker/tools/http/address.ts';
import { refusedHeader } from '../../../worker/tools/http/request.ts';

const rules = {
  ownOrigin: 'https://gateway.example.com',
  allowedOrigins: new Set(['http://127.0.0.1:9000']),
};

describe('an address of an HTTP tool', () => {
  test.each([
    'https://127.0.0.1/',
    'https://127.1/',
    'https://0/',
    'https://2130706433/',
    'https://0x7f.1/',
    'https://0177.0.0.1/',
    'https://①②⑦.⓪.⓪.①/',
    'https://127。0。0。1/',
    'https://%31%32%37.0.0.1/',
    'https://127.0.0.1./',
    'https:127.0.0.1',
    'https://[::1]/',
    'https://[::ffff:127.0.0.1]/',
    'https://[64:ff9b::7f00:1]/',
    'https://169.254.169.254/latest',
    'https://localhost/',
    'https://localhost./',
    'https://localhost../',
    'https://127.0.0.1../',
    'https://db.internal../',
    'https://a.localhost/',
    'https://db.internal/',
    'https://printer.local/',
    'https://metadata.google.internal/',
    'https://intranet/',
    'https://kubernetes.default.svc.cluster.local/',
    'http://api.example.com/',
    'https://api.example.com:8443/',
    'ftp://api.example.com/',
    'https://user:x@api.example.com/',
    'https://gateway.example.com/v1/tools',
    'https://gateway.example.com./v1/tools',
    'https://GATEWAY.example.com../v1/tools',
    'http://127.0.0.1:9001/',
  ])('is not %s', (text) => {
    expect(addressFault(new URL(text), rules)).toBeDefined();
  });

  test.each([
    'https://api.example.com/v1',
    'https://api.example.com:443/',
    'https://xn--bcher-kva.example/',
    'http://127.0.0.1:9000/x',
  ])('may be %s', (text) => {
    expect(addressFault(new URL(text), rules)).toBeUndefined();
  });

  test.each([
    'https://{host}/x',
    'https://api.{zone}.com/',
    'https://api.example.com{x}',
    'https://{a}@api.example.com/',
    '{url}',
    'https://api.example.com\\@127.0.0.1/',
    'https://api.example.com/#{x}',
    '/v1/x',
    'https:///x',
  ])('is not written %s', (template) => {
    expect(templateFault(template, rules)).toBeDefined();
  });

  test('takes each argument as one part, whatever is in it', () => {
    const filled = filledAddress('https://api.example.com/{a}/x?b={b}', { a: '../é/?#', b: '1&c=2' });
    expect(filled).toMatchObject({ ok: true });
    if (filled.ok) expect(filled.url.href).toBe('https://api.example.com/..%2F%C3%A9%2F%3F%23/x?b=1%26c%3D2');
  });

  test.each([['..'], ['.'], [''], [null], [{}], [undefined]])(
    'takes no part that is a step or none: %j',
    (a) => {
      expect(filledAddress('https://api.example.com/{a}/x', { a })).toMatchObject({ ok: false, name: 'a' });
    },
  );
});

test.each(['Host', 'content-length', 'Transfer-Encoding', 'connection'])(
  'a tool sets no header %s',
  (name) => {
    expect(refusedHeader({ [name]: 'x' })).toBe(name);
  },
);
