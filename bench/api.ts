/** The HTTP calls of the benches: one connection kept alive, as an agent's client keeps it. */
import { Readable } from 'node:stream';
import { Client } from 'undici';
import * as z from 'zod';
import { ExecutionSchema } from '../shared/execution.ts';
import { SessionSchema } from '../shared/session.ts';

const CallResultSchema = ExecutionSchema.pick({ status: true, value: true, stdout: true });
const RpcAnswerSchema = z.object({ result: z.unknown() });
type CallResult = z.infer<typeof CallResultSchema>;

export class Api {
  readonly #client: Client;
  readonly #token: string;

  constructor(url: string, token: string) {
    this.#client = new Client(url, { headersTimeout: 120_000, bodyTimeout: 120_000 });
    this.#token = token;
  }

  async createSession(request: object = {}): Promise<z.infer<typeof SessionSchema>> {
    return SessionSchema.parse(await this.#json('POST', '/v1/sessions', request));
  }

  async deleteSession(sessionId: string): Promise<void> {
    await this.delete(`/v1/sessions/${sessionId}`);
  }

  async delete(path: string): Promise<void> {
    for await (const chunk of await this.#request('DELETE', path)) void chunk;
  }

  /** `pause`, `resume`, `suspend`. */
  async act(sessionId: string, action: string): Promise<void> {
    await this.#json('POST', `/v1/sessions/${sessionId}/${action}`, {});
  }

  async execute(sessionId: string, toolName: string, toolArguments: object): Promise<CallResult> {
    const body = { tool_name: toolName, arguments: toolArguments };
    return CallResultSchema.parse(await this.#json('POST', `/v1/sessions/${sessionId}/execute`, body));
  }

  /** One message of MCP as the newer era sends it, and the result of its answer. */
  async mcp(method: string, params: Record<string, unknown>): Promise<unknown> {
    const version = '2026-07-28';
    const meta = {
      'io.modelcontextprotocol/protocolVersion': version,
      'io.modelcontextprotocol/clientInfo': { name: 'bench', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    };
    const response = await this.#client.request({
      method: 'POST',
      path: '/mcp',
      headers: {
        authorization: `Bearer ${this.#token}`,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': version,
        'mcp-method': method,
        ...(typeof params.name === 'string' ? { 'mcp-name': params.name } : {}),
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: meta } }),
    });
    const text = await response.body.text();
    const data = /^data: (.*)$/m.exec(text)?.[1] ?? text;
    return RpcAnswerSchema.parse(JSON.parse(data)).result;
  }

  post(path: string, body: object): Promise<unknown> {
    return this.#json('POST', path, body);
  }

  put(path: string, body: object): Promise<unknown> {
    return this.#json('PUT', path, body);
  }

  get(path: string): Promise<unknown> {
    return this.#json('GET', path);
  }

  /** Bytes of the response to a streamed execute, as they arrive. */
  async stream(sessionId: string, toolName: string, toolArguments: object): Promise<AsyncIterable<Buffer>> {
    const body = { tool_name: toolName, arguments: toolArguments, stream: true, timeout_ms: 120_000 };
    return this.#request('POST', `/v1/sessions/${sessionId}/execute`, body);
  }

  /** Puts a file whose bytes come piece by piece. */
  async upload(path: string, pieces: Iterable<Buffer>): Promise<void> {
    const response = await this.#client.request({
      method: 'PUT',
      path,
      headers: { authorization: `Bearer ${this.#token}` },
      body: Readable.from(pieces, { objectMode: false }),
    });
    const text = await response.body.text();
    if (response.statusCode >= 400) throw new Error(`PUT ${path}: ${response.statusCode} ${text}`);
  }

  download(path: string): Promise<AsyncIterable<Buffer>> {
    return this.#request('GET', path);
  }

  async plain(): Promise<void> {
    const body = await this.#request('GET', '/healthz');
    for await (const chunk of body) void chunk;
  }

  async close(): Promise<void> {
    await this.#client.close();
  }

  async #json(method: 'GET' | 'POST' | 'PUT', path: string, body?: object): Promise<unknown> {
    const chunks: Buffer[] = [];
    for await (const chunk of await this.#request(method, path, body)) chunks.push(chunk);
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  }

  async #request(
    method: 'GET' | 'POST' | 'PUT' | 'DELETE',
    path: string,
    body?: object,
  ): Promise<AsyncIterable<Buffer>> {
    const response = await this.#client.request({
      method,
      path,
      headers: { authorization: `Bearer ${this.#token}`, 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
    });
    if (response.statusCode >= 400) {
      throw new Error(`${method} ${path}: ${response.statusCode} ${await response.body.text()}`);
    }
    return response.body;
  }
}
