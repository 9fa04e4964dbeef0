/** The answers of a server over HTTP, one message or a stream of them, as they may be read. */
import { isJSONRPCResponse } from '@modelcontextprotocol/client';
import { isSchema } from '../../formats/json-schema.ts';
import type { Fetch } from '../../tools/http/bounded-fetch.ts';
import { exactMessage } from './exact-message.ts';

export function exactFetch(fetch: Fetch): Fetch {
  return async (address, init) => {
    const response = await fetch(address, init);
    const messages = messagesOf(response.headers.get('content-type') ?? '');
    if (response.body === null || messages === undefined) return response;
    const headers = new Headers(response.headers);
    // What is marked is longer.
    headers.delete('content-length');
    const body = response.body
      .pipeThrough(new TextDecoderStream())
      .pipeThrough(messages)
      .pipeThrough(new TextEncoderStream());
    return new Response(body, { status: response.status, statusText: response.statusText, headers });
  };
}

function messagesOf(contentType: string): TransformStream<string, string> | undefined {
  switch (contentType.split(';')[0]?.trim().toLowerCase()) {
    case 'application/json':
      return oneMessage();
    case 'text/event-stream':
      return eventMessages();
    default:
      return undefined;
  }
}

function oneMessage(): TransformStream<string, string> {
  const parts: string[] = [];
  return new TransformStream({
    transform: (part) => {
      parts.push(part);
    },
    flush: (controller) => controller.enqueue(exactMessage(parts.join(''))),
  });
}

/** Of a stream of events: an empty line, in any of the ways to end one. */
const EVENT_END = /(?:\r\n|\n|\r(?!\n)){2}/g;
const LINE_END = /\r\n|\n|\r/;
const DATA = /^data(?:: ?|$)/;
/** The end of an event may lie between two parts. */
const MAX_END_CHARACTERS = 4;

/** An event is passed on when it is whole, which is when its reader takes it. */
function eventMessages(): TransformStream<string, string> {
  let held = '';
  let looked = 0;
  return new TransformStream({
    transform: (part, controller) => {
      held += part;
      let from = 0;
      EVENT_END.lastIndex = Math.max(0, looked - MAX_END_CHARACTERS);
      for (let end = EVENT_END.exec(held); end !== null; end = EVENT_END.exec(held)) {
        controller.enqueue(exactEvent(held.slice(from, EVENT_END.lastIndex)));
        from = EVENT_END.lastIndex;
      }
      held = held.slice(from);
      looked = held.length;
    },
    flush: (controller) => controller.enqueue(held),
  });
}

function exactEvent(event: string): string {
  const lines = event.split(LINE_END);
  const text = lines
    .filter((line) => DATA.test(line))
    .map((line) => line.replace(DATA, ''))
    .join('\n');
  const exact = exactMessage(answerable(text));
  if (exact === text) return event;
  const others = lines.filter((line) => line !== '' && !DATA.test(line));
  return [...others, `data: ${exact}`, '', ''].join('\n');
}

/**
 * The client passes over an event that is no message of the protocol, and its request would wait until its deadline: where it is
 * meant as an answer, it is an error.
 */
function answerable(text: string): string {
  const message = parsed(text);
  if (!isSchema(message) || 'method' in message || isJSONRPCResponse(message)) return text;
  const { id } = message;
  if (typeof id !== 'string' && typeof id !== 'number') return text;
  const error = { code: -32_603, message: 'the answer of the server is no message of the protocol' };
  return JSON.stringify({ jsonrpc: '2.0', id, error });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
