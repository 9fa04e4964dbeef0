/** A call of an HTTP tool as a request. */
import type { RegisteredTool } from '../../../shared/registered-tool.ts';
import { filledAddress } from './address.ts';

export type HttpTool = Extract<RegisteredTool, { kind: 'http' }>;

export interface ToolRequest {
  url: URL;
  method: HttpTool['method'];
  headers: Record<string, string>;
  body: string | undefined;
}

/** They are the connection's, or would make the request another one. */
const REFUSED_HEADERS = [
  'host',
  'content-length',
  'transfer-encoding',
  'connection',
  'keep-alive',
  'upgrade',
  'te',
  'trailer',
  'proxy-authorization',
  'proxy-connection',
  'expect',
];

export function refusedHeader(headers: Readonly<Record<string, string>>): string | undefined {
  return Object.keys(headers).find((name) => REFUSED_HEADERS.includes(name.toLowerCase()));
}

/** Arguments that the address does not take go into the query or, where the method has one, into the body. */
export function toolRequest(
  tool: HttpTool,
  args: Readonly<Record<string, unknown>>,
): { ok: true; request: ToolRequest } | { ok: false; name: string; expected: string } {
  const filled = filledAddress(tool.url, args);
  if (!filled.ok) return filled;
  const { url, used } = filled;
  const rest = Object.entries(args).filter(([name]) => !used.has(name));
  const headers = {
    accept: 'application/json, text/*;q=0.9, */*;q=0.1',
    'user-agent': 'sandgate',
    ...tool.headers,
  };
  if (tool.method === 'GET' || tool.method === 'DELETE') {
    for (const [name, value] of rest) {
      const values = Array.isArray(value) ? value : [value];
      for (const one of values)
        url.searchParams.append(name, typeof one === 'string' ? one : JSON.stringify(one));
    }
    return { ok: true, request: { url, method: tool.method, headers, body: undefined } };
  }
  return {
    ok: true,
    request: {
      url,
      method: tool.method,
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(Object.fromEntries(rest)),
    },
  };
}
