/** JSON-RPC over the gateway's MCP route, message by message: for what a real client would not send. */
import * as z from 'zod';
import { request } from '../harness/api.ts';

const MessageSchema = z.looseObject({
  jsonrpc: z.literal('2.0'),
  id: z.union([z.string(), z.number(), z.null()]).optional(),
  method: z.string().optional(),
  params: z.record(z.string(), z.unknown()).optional(),
  result: z.record(z.string(), z.unknown()).optional(),
  error: z.object({ code: z.number(), message: z.string(), data: z.unknown().optional() }).optional(),
});
export type Message = z.infer<typeof MessageSchema>;

export interface RpcAnswer {
  status: number;
  headers: Headers;
  text: string;
  messages: Message[];
}

export interface RpcOptions {
  token?: string;
  headers?: Record<string, string>;
}

/** Sends a body and reads the answer to its end, be it JSON or a stream. */
export async function rpc(body: unknown, options: RpcOptions = {}): Promise<RpcAnswer> {
  const response = await openRpc(body, options);
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, messages: messagesIn(response, text) };
}

export function openRpc(body: unknown, { token, headers = {} }: RpcOptions = {}): Promise<Response> {
  return request('POST', '/mcp', {
    ...(token === undefined ? {} : { token }),
    headers: {
      Accept: 'application/json, text/event-stream',
      'Content-Type': 'application/json',
      ...headers,
    },
    raw: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

export function messagesIn(response: Response, text: string): Message[] {
  const type = response.headers.get('Content-Type') ?? '';
  if (type.startsWith('text/event-stream')) return eventData(text).map((data) => MessageSchema.parse(data));
  return type === 'application/json' && text !== '' ? [MessageSchema.parse(JSON.parse(text))] : [];
}

export interface RpcEvent {
  id: string | undefined;
  message: Message | undefined;
}

/** The events of a stream as they come, without comments. */
export async function* eventsOf(response: Response): AsyncGenerator<RpcEvent> {
  let unfinished = '';
  const body = response.body ?? new ReadableStream<Uint8Array>();
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
    const blocks = `${unfinished}${text}`.split('\n\n');
    unfinished = blocks.pop() ?? '';
    for (const block of blocks) {
      const lines = block.split('\n');
      const fieldOf = (name: string) => lines.find((line) => line.startsWith(name))?.slice(name.length);
      const data = fieldOf('data: ');
      if (data === undefined) continue;
      const message = data === '' ? undefined : MessageSchema.parse(JSON.parse(data));
      yield { id: fieldOf('id: '), message };
    }
  }
}

/** Comes back for a stream that was cut. */
export function resume(
  lastEventId: string | undefined,
  { token, headers = {} }: RpcOptions = {},
): Promise<Response> {
  return request('GET', '/mcp', {
    ...(token === undefined ? {} : { token }),
    headers: {
      Accept: 'text/event-stream',
      ...(lastEventId === undefined ? {} : { 'Last-Event-ID': lastEventId }),
      ...headers,
    },
  });
}

function eventData(text: string): unknown[] {
  return text
    .split('\n')
    .filter((line) => line.startsWith('data: ') && line !== 'data: ')
    .map((line) => JSON.parse(line.slice('data: '.length)));
}

export function call(id: number | string, name: string, args: Record<string, unknown>): object {
  return { jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } };
}

export function initialize(protocolVersion: string | undefined): object {
  return {
    jsonrpc: '2.0',
    id: 0,
    method: 'initialize',
    params: { protocolVersion, capabilities: {}, clientInfo: { name: 'test', version: '1' } },
  };
}

export const MODERN = '2026-07-28';

/** A request as the era of 2026-07-28 sends it: everything in the message, repeated in headers. */
export function modern(message: Record<string, unknown>, more: Record<string, unknown> = {}) {
  const { params, method } = z
    .object({ method: z.string(), params: z.record(z.string(), z.unknown()).default({}) })
    .parse(message);
  const meta = {
    'io.modelcontextprotocol/protocolVersion': MODERN,
    'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': {},
    ...more,
  };
  const headers: Record<string, string> = { 'Mcp-Protocol-Version': MODERN, 'Mcp-Method': method };
  const named = params.name ?? params.taskId;
  if (typeof named === 'string') headers['Mcp-Name'] = named;
  return { body: { ...message, params: { ...params, _meta: meta } }, headers };
}
