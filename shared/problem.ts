/** Refusals as `application/problem+json` (RFC 9457). */
import * as z from 'zod';
import { ERRORS, type ErrorCode, type Failure } from './errors.ts';

export const PROBLEM_MEDIA_TYPE = 'application/problem+json';

export const ProblemSchema = z.object({
  type: z.string(),
  title: z.string(),
  status: z.int(),
  code: z.string(),
  detail: z.string(),
  retryable: z.boolean(),
  request_id: z.string(),
  violations: z
    .array(z.object({ path: z.string(), expected: z.string(), received: z.string().optional() }))
    .optional(),
  /** Of a limit that was reached: which, how much, and when it begins anew. */
  limit: z
    .object({
      name: z.string(),
      scope: z.enum(['tenant', 'subject', 'session']),
      limit: z.number(),
      used: z.number(),
      resets_at: z.iso.datetime().nullable(),
    })
    .optional(),
});
export type Problem = z.infer<typeof ProblemSchema>;

export function problemOf(refused: Failure, requestId: string): Problem {
  const entry = ERRORS[refused.code];
  return {
    type: `urn:sandgate:error:${refused.code}`,
    title: entry.reason,
    status: entry.status,
    code: refused.code,
    detail: refused.detail,
    retryable: entry.retryable,
    request_id: requestId,
    ...(refused.violations === undefined ? {} : { violations: refused.violations }),
    ...(refused.limit === undefined ? {} : { limit: refused.limit }),
  };
}

export function isErrorCode(text: string): text is ErrorCode {
  return Object.hasOwn(ERRORS, text);
}
