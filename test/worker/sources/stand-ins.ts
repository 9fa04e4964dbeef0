/** Servers of others, as far as the gateway can tell: they answer what it fetches. */
import {
  createMcpHandler,
  McpServer,
  Server,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server';
import { vi } from 'vitest';
import * as z from 'zod';

export type Answer = (request: Request) => Response | Promise<Response>;

/** What is fetched is answered by host name; anything else cannot be reached. */
export class Internet {
  readonly requests: Request[] = [];
  readonly #hosts = new Map<string, Answer>();

  start(): void {
    vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
      const request = new Request(input, init);
      this.requests.push(request.clone());
      const answer = this.#hosts.get(new URL(request.url).host);
      if (answer === undefined) throw new TypeError('fetch failed');
      return answer(request);
    });
  }

  host(name: string, answer: Answer): void {
    this.#hosts.set(name, answer);
  }

  to(host: string): Request[] {
    return this.requests.filter(({ url }) => new URL(url).host === host);
  }
}

/** Of both eras, without a state. */
export function statelessServer(define: (server: McpServer) => void): Answer {
  return statelessHandler(define).answer;
}

export function statelessHandler(define: (server: McpServer) => void): {
  answer: Answer;
  toolsChanged: () => void;
} {
  const handler = createMcpHandler(() => {
    const server = new McpServer({ name: 'stand-in', version: '3' });
    define(server);
    return server;
  });
  return {
    answer: (request) => handler.fetch(request),
    toolsChanged: () => handler.notify.toolsChanged(),
  };
}

/** Of the older era, with sessions; `forget` makes it know none of them any more. */
export function sessionServer(define: (server: Server) => void): {
  answer: Answer;
  forget: () => void;
  sessions: () => number;
} {
  const transports = new Map<string, WebStandardStreamableHTTPServerTransport>();
  return {
    sessions: () => transports.size,
    forget: () => transports.clear(),
    answer: async (request) => {
      const id = request.headers.get('mcp-session-id');
      const known = id === null ? undefined : transports.get(id);
      if (known !== undefined) return known.handleRequest(request);
      if (id !== null) return new Response('unknown session', { status: 404 });
      const transport = new WebStandardStreamableHTTPServerTransport({
        sessionIdGenerator: () => crypto.randomUUID(),
        onsessioninitialized: (sessionId) => {
          transports.set(sessionId, transport);
        },
      });
      const server = new Server(
        { name: 'older stand-in', version: '1' },
        { capabilities: { tools: { listChanged: true } } },
      );
      define(server);
      await server.connect(transport);
      return transport.handleRequest(request);
    },
  };
}

const RpcSchema = z.looseObject({ id: z.union([z.string(), z.number()]).optional(), method: z.string() });

/** Speaks the older era by hand: what the official server would not say. */
export function scriptedServer(
  answers: Record<string, (params: Record<string, unknown>) => unknown>,
  { protocolVersion = '2025-11-25' } = {},
): Answer {
  return async (request) => {
    if (request.method !== 'POST') return new Response(null, { status: 405 });
    const { id, method, params } = RpcSchema.extend({
      params: z.record(z.string(), z.unknown()).default({}),
    }).parse(await request.json());
    if (id === undefined) return new Response(null, { status: 202 });
    const result =
      method === 'initialize'
        ? { protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'scripted', version: '1' } }
        : answers[method]?.(params);
    if (result instanceof Response || result instanceof Promise) return result;
    const body = result === undefined ? { error: { code: -32601, message: 'no such method' } } : { result };
    return Response.json({ jsonrpc: '2.0', id, ...body });
  };
}

export function add(server: McpServer): void {
  server.registerTool(
    'add',
    {
      title: 'Add',
      description: 'Adds two numbers',
      inputSchema: z.object({ a: z.number(), b: z.number() }),
      outputSchema: z.object({ sum: z.number() }),
      annotations: { readOnlyHint: true, idempotentHint: true },
    },
    ({ a, b }) => {
      const structuredContent = { sum: a + b };
      return { content: [{ type: 'text', text: JSON.stringify(structuredContent) }], structuredContent };
    },
  );
}
