/** Why the edge opens no link: a client of WebSockets hears nothing of it, so the same route is asked plainly. */
import { request } from 'undici';
import * as z from 'zod';
import type { Log } from '../logging/log.ts';
import type { LinkTarget } from './edge-links.ts';

const TIMEOUT_MS = 10_000;
const MAX_ANSWER_BYTES = 16 * 1024;
const MAX_DETAIL_LENGTH = 512;
/** What an edge answers to a plain request whose WebSocket it would open. */
const WOULD_OPEN = 'invalid_request';

export interface LinkRefusal {
  code: string;
  detail: string;
}

const RefusalSchema = z.object({
  code: z.string().regex(/^[a-z_]{1,64}$/),
  detail: z.string().transform((text) => text.replace(/\p{Cc}/gu, ' ').slice(0, MAX_DETAIL_LENGTH)),
  retryable: z.boolean(),
});
type Refusal = z.infer<typeof RefusalSchema>;

export class LinkRefusals {
  readonly #target: LinkTarget;
  readonly #log: Log;
  #refusal: Refusal | undefined;
  #asking: AbortController | undefined;

  constructor(target: LinkTarget, log: Log) {
    this.#target = target;
    this.#log = log;
  }

  get current(): LinkRefusal | undefined {
    if (this.#refusal === undefined) return undefined;
    const { code, detail } = this.#refusal;
    return { code, detail };
  }

  /** A refusal that will not pass is asked for once; another may be followed by one that will not. */
  ask(): void {
    if (this.#asking !== undefined || this.#refusal?.retryable === false) return;
    const asking = new AbortController();
    this.#asking = asking;
    void this.#answer(asking.signal).then((refusal) => {
      if (this.#asking !== asking) return;
      this.#asking = undefined;
      const isNews = refusal !== undefined && refusal.code !== this.#refusal?.code;
      this.#refusal = refusal;
      if (isNews) this.#log.error({ event: 'link_refused', code: refusal.code, detail: refusal.detail });
    });
  }

  /** The link is up. */
  forget(): void {
    this.stop();
    this.#refusal = undefined;
  }

  stop(): void {
    this.#asking?.abort();
    this.#asking = undefined;
  }

  async #answer(stopped: AbortSignal): Promise<Refusal | undefined> {
    const url = new URL(this.#target.url);
    url.protocol = url.protocol === 'wss:' ? 'https:' : 'http:';
    try {
      const { body } = await request(url, {
        headers: this.#target.headers(),
        signal: AbortSignal.any([stopped, AbortSignal.timeout(TIMEOUT_MS)]),
      });
      let text = '';
      for await (const chunk of body.setEncoding('utf8')) {
        text += String(chunk);
        if (text.length > MAX_ANSWER_BYTES) return undefined;
      }
      const refusal = RefusalSchema.parse(JSON.parse(text));
      return refusal.code === WOULD_OPEN ? undefined : refusal;
    } catch {
      // An edge that cannot be reached, or what is there in its place, says nothing of this host.
      return undefined;
    }
  }
}
