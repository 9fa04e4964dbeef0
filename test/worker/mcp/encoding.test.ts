import { expect, test } from 'vitest';
import { concatBytes, utf8 } from '../../../shared/encoding.ts';
import { tokenOf } from '../fixture-issuer.ts';
import { request } from '../harness/api.ts';

const [before, after] = ['{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"note":"', '"}}}'];

async function send(note: Uint8Array): Promise<Response> {
  return request('POST', '/mcp', {
    token: await tokenOf(),
    headers: { Accept: 'application/json, text/event-stream', 'Content-Type': 'application/json' },
    raw: concatBytes([utf8(before), note, utf8(after)]),
  });
}

test.each<[string, number[]]>([
  ['a byte that begins nothing', [0xff]],
  ['half a character', [0xc3]],
  ['an overlong slash', [0xc0, 0xaf]],
  ['a surrogate', [0xed, 0xa0, 0x80]],
])('a message with %s is refused as what it is (K24)', async (_name, bytes) => {
  const response = await send(new Uint8Array(bytes));
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({
    jsonrpc: '2.0',
    id: null,
    error: { code: -32_700, message: 'the body is not text in UTF-8' },
  });
});

test('a message with text beyond ASCII is taken', async () => {
  const response = await send(utf8('é — 🦊'));
  expect(response.status).toBe(200);
  await response.body?.cancel();
});
