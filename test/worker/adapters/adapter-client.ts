/** Requests as the HTTP libraries of other servers' clients send them. */
import { request } from '../harness/api.ts';

export interface AdapterAnswer {
  status: number;
  headers: Headers;
  text: string;
  json: unknown;
}

export interface AdapterRequest {
  headers?: Record<string, string>;
  json?: unknown;
  raw?: BodyInit;
}

export async function send(
  method: string,
  path: string,
  { headers = {}, json, raw }: AdapterRequest,
): Promise<AdapterAnswer> {
  const response = await request(method, path, {
    headers: { 'User-Agent': 'python-requests/2.31.0', Accept: '*/*', ...headers },
    ...(json === undefined ? {} : { body: json }),
    ...(raw === undefined ? {} : { raw }),
  });
  const text = await response.text();
  const isJson = response.headers.get('Content-Type') === 'application/json';
  return {
    status: response.status,
    headers: response.headers,
    text,
    json: isJson ? JSON.parse(text) : undefined,
  };
}

export function detailIn(answer: AdapterAnswer): unknown {
  const { json } = answer;
  if (typeof json === 'object' && json !== null && 'detail' in json) return json.detail;
  throw new Error(`a refusal was expected, not ${answer.status} ${answer.text.slice(0, 300)}`);
}
