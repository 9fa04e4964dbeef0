import { expect, test } from 'vitest';
import * as z from 'zod';
import { exactFetch } from '../../../worker/sources/mcp/exact-fetch.ts';
import { inexactPlace } from '../../../worker/sources/mcp/exact-message.ts';

async function read(text: string, { pieceLength = text.length, type = 'text/event-stream' } = {}) {
  const pieces = Array.from({ length: Math.ceil(text.length / pieceLength) }, (_, n) =>
    text.slice(n * pieceLength, (n + 1) * pieceLength),
  );
  const body = new ReadableStream<string>({
    start: (controller) => {
      for (const piece of pieces) controller.enqueue(piece);
      controller.close();
    },
  });
  const bytes = body.pipeThrough(new TextEncoderStream());
  const answer = exactFetch(async () => new Response(bytes, { headers: { 'content-type': type } }));
  return (await answer('https://mcp.example.com/')).text();
}

const MessageSchema = z.object({ result: z.looseObject({}) });

/** Where each message has data that cannot be given. */
function placesIn(text: string): (string | undefined)[] {
  return text
    .split(/(?:\r\n|\n|\r(?!\n)){2}/)
    .map((event) => event.split(/\r\n|\n|\r/).flatMap((line) => /^data: ?(.*)$/.exec(line)?.[1] ?? []))
    .filter((lines) => lines.length > 0)
    .map((lines) => inexactPlace(MessageSchema.parse(JSON.parse(lines.join('\n'))).result));
}

test.each([['\n'], ['\r\n'], ['\r']])(
  'events whose lines end with %j are marked in any pieces',
  async (line) => {
    const end = `${line}${line}`;
    const event = (data: string) =>
      `id: 7${line}event: message${line}data: {"result":{"structuredContent":${line}data:{"n":${data}}}}${end}`;
    const text = `: a comment${end}${event('1')}${event('9007199254740993')}${event('"9007199254740993"')}`;
    const read1 = await read(text);
    expect(placesIn(read1)).toEqual([undefined, 'structuredContent.n', undefined]);
    expect(read1.match(/^id: 7$/gm)).toHaveLength(3);
    for (const pieceLength of [1, 2, 3, 5])
      expect(placesIn(await read(text, { pieceLength }))).toEqual(placesIn(read1));
  },
);

test('what needs no mark is passed on as it came, also the beginning of an event that was cut', async () => {
  const exact = 'data: {"result":{"structuredContent":{"n":9007199254740991}}}\n\ndata: {"result":{"st';
  expect(await read(exact)).toBe(exact);
  const elsewhere = '{"result":{"_meta":{"n":9007199254740993},"content":[]}}';
  expect(await read(elsewhere, { type: 'application/json; charset=utf-8' })).toBe(elsewhere);
  const noMessage = 'n = 9007199254740993';
  expect(await read(noMessage, { type: 'application/json' })).toBe(noMessage);
  expect(await read(noMessage, { type: 'text/plain' })).toBe(noMessage);
});

test('one of several messages marks them all, and data too deep to be read counts as inexact', async () => {
  const several =
    '[{"result":{"structuredContent":{"n":9007199254740993}}},{"id":2,"error":{}},{"result":{}}]';
  const messages = z
    .array(z.looseObject({}))
    .parse(JSON.parse(await read(several, { type: 'application/json' })));
  expect(messages.map((one) => inexactPlace(z.looseObject({}).parse(one.result ?? {})))).toEqual([
    'structuredContent.n',
    undefined,
    'structuredContent.n',
  ]);
  const deep = `{"result":{"structuredContent":${'['.repeat(600)}9007199254740993${']'.repeat(600)}}}`;
  expect(await read(deep, { type: 'application/json' })).toContain('"sandgate/inexact":"structuredContent.0');
});

test.each(['{"id":3,"result":[]}', '{"jsonrpc":"2.0","id":3,"error":{"code":"x"}}'])(
  'an event that is meant as an answer and is no message is an error of its request: %s',
  async (data) => {
    const text = await read(`data: ${data}\n\n`);
    expect(text).toMatch(/^data: .*"id":3,"error":\{"code":-32603,/);
    const left = `data: {"jsonrpc":"2.0","id":3,"result":{}}\n\ndata: not JSON\n\ndata: {"id":{}}\n\n`;
    expect(await read(left)).toBe(left);
  },
);
