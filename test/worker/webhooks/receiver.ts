/** A receiver of webhooks: what it was sent, and the check of a signature as a receiver makes it. */
import { type Event, EventSchema } from '../../../shared/event.ts';
import type { Answer, Internet } from '../sources/stand-ins.ts';

export interface Received {
  id: string;
  event: Event;
  headers: Headers;
  text: string;
}

export class Receiver {
  readonly host: string;
  readonly received: Received[] = [];
  /** Answers of the next requests, then 204. */
  answers: (() => Response)[] = [];
  always: Answer | undefined;

  constructor(internet: Internet, host: string) {
    this.host = host;
    internet.host(host, async (request) => {
      const text = await request.text();
      this.received.push({
        id: request.headers.get('webhook-id') ?? '',
        event: EventSchema.parse(JSON.parse(text)),
        headers: request.headers,
        text,
      });
      if (this.always !== undefined) return this.always(request);
      return this.answers.shift()?.() ?? new Response(null, { status: 204 });
    });
  }

  get url(): string {
    return `https://${this.host}/hook`;
  }

  of(type: Event['type']): Received[] {
    return this.received.filter(({ event }) => event.type === type);
  }
}

/** Whether one of the signatures is by the secret, and is of now. */
export async function isSignedBy(
  secret: string,
  { headers, text }: Pick<Received, 'headers' | 'text'>,
): Promise<boolean> {
  const bytes = (base64: string) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const key = await crypto.subtle.importKey(
    'raw',
    bytes(secret.replace('whsec_', '')),
    { name: 'HMAC', hash: 'SHA-256' },
    false,
    ['verify'],
  );
  const time = headers.get('webhook-timestamp');
  const signed = new TextEncoder().encode(`${headers.get('webhook-id')}.${time}.${text}`);
  const checks = (headers.get('webhook-signature') ?? '').split(' ').map(async (signature) => {
    const [version, base64 = ''] = signature.split(',');
    return version === 'v1' && crypto.subtle.verify('HMAC', key, bytes(base64), signed);
  });
  const isNow = Math.abs(Date.now() / 1_000 - Number(time)) < 300;
  return isNow && (await Promise.all(checks)).includes(true);
}

/** Says nothing for as long as it is asked. */
export function silent({ signal }: Request): Promise<Response> {
  const { promise, reject } = Promise.withResolvers<Response>();
  signal.addEventListener('abort', () => reject(signal.reason));
  return promise;
}
