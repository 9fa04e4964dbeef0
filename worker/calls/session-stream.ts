/** Streams that the session object serves by `fetch`: passed through as they are, refusals as values. */
import * as z from 'zod';
import { ERRORS, type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import { isErrorCode, ProblemSchema } from '../../shared/problem.ts';
import { EVENT_STREAM_MEDIA_TYPE } from '../middleware/body.ts';
import { unwrap } from '../middleware/refusal.ts';
import { type ExecuteInput, INTERNAL_HEADERS, INTERNAL_PATHS } from '../objects/session/port.ts';
import type { OwnSession } from './own-session.ts';

/** The object does not read it; a request needs one. */
const INTERNAL_ORIGIN = 'https://session';

export async function streamExecute(session: OwnSession, input: ExecuteInput): Promise<Outcome<Response>> {
  return openStream(session, { safe: false }, () => {
    return new Request(`${INTERNAL_ORIGIN}${INTERNAL_PATHS.execute}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(input),
    });
  });
}

export async function streamEvents(
  session: OwnSession,
  about: { executionId: string; encoding: 'utf-8' | 'base64'; lastEventId: string | null },
): Promise<Response> {
  return unwrap(await openEvents(session, about));
}

export function openEvents(
  session: OwnSession,
  about: { executionId: string; encoding: 'utf-8' | 'base64'; lastEventId: string | null },
): Promise<Outcome<Response>> {
  const path = `${INTERNAL_PATHS.events}${about.executionId}/events?encoding=${about.encoding}`;
  return openStream(session, { safe: true }, () => {
    const headers = new Headers({ [INTERNAL_HEADERS.caller]: asciiJson(session.caller) });
    if (about.lastEventId !== null) headers.set(INTERNAL_HEADERS.lastEventId, about.lastEventId);
    return new Request(`${INTERNAL_ORIGIN}${path}`, { headers });
  });
}

/** What happens in the session, after the event with this number. */
export async function streamSessionEvents(
  session: OwnSession,
  lastEventId: string | null,
): Promise<Response> {
  return unwrap(
    await openStream(session, { safe: true }, () => {
      const headers = new Headers({ [INTERNAL_HEADERS.caller]: asciiJson(session.caller) });
      if (lastEventId !== null) headers.set(INTERNAL_HEADERS.lastEventId, lastEventId);
      return new Request(`${INTERNAL_ORIGIN}${INTERNAL_PATHS.sessionEvents}`, { headers });
    }),
  );
}

function openStream(
  session: OwnSession,
  about: { safe: boolean },
  request: () => Request,
): Promise<Outcome<Response>> {
  return session.call(async (stub) => {
    const response = await stub.fetch(request());
    if (response.status >= 400) return failureIn(response);
    return success(
      new Response(response.body, {
        headers: {
          'Content-Type': EVENT_STREAM_MEDIA_TYPE,
          // Proxies that buffer would hold events back.
          'X-Accel-Buffering': 'no',
        },
      }),
    );
  }, about);
}

const FailureSchema = z.object({
  code: z.string(),
  detail: z.string(),
  violations: z.array(z.object({ path: z.string(), expected: z.string() })).optional(),
  retry_after_s: z.number().optional(),
  limit: ProblemSchema.shape.limit,
});

export async function failureIn(response: Response): Promise<Failure> {
  const parsed = FailureSchema.safeParse(await response.json().catch(() => undefined));
  if (!parsed.success || !isErrorCode(parsed.data.code)) {
    return failure('internal', ERRORS.internal.reason);
  }
  const { code, detail, ...more } = parsed.data;
  return isErrorCode(code) ? failure(code, detail, more) : failure('internal', ERRORS.internal.reason);
}

/** JSON in ASCII: header values carry no other characters. */
export function asciiJson(value: object): string {
  return JSON.stringify(value).replaceAll(
    /[^\x20-\x7e]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
