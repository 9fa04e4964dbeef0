/** What a tenant's object tells many sessions at once, by the queue: what they have to do from now on. */
import * as z from 'zod';
import { SessionIdSchema, TenantSchema } from '../../shared/ids.ts';
import { AccountTermsSchema, LimitTermsSchema } from '../objects/tenant/ledger/account.ts';

/** Sessions in one message: what one run of the consumer has to do stays bounded. */
const MAX_SESSIONS_A_NOTICE = 100;

export const TermsNoticeSchema = z.strictObject({
  kind: z.literal('terms'),
  tenant: TenantSchema,
  /** What is the same for all of them. */
  terms: AccountTermsSchema.omit({ limited: true, counted: true }),
  sessions: z
    .array(LimitTermsSchema.extend({ sessionId: SessionIdSchema }))
    .min(1)
    .max(MAX_SESSIONS_A_NOTICE),
});
export type TermsNotice = z.infer<typeof TermsNoticeSchema>;

/** The messages that tell these sessions. */
export function termsNotices(
  common: Pick<TermsNotice, 'tenant' | 'terms'>,
  sessions: readonly TermsNotice['sessions'][number][],
): { body: TermsNotice; contentType: 'json' }[] {
  const starts = Array.from({ length: Math.ceil(sessions.length / MAX_SESSIONS_A_NOTICE) });
  return starts.map((_, n) => ({
    body: {
      kind: 'terms',
      ...common,
      sessions: sessions.slice(n * MAX_SESSIONS_A_NOTICE, (n + 1) * MAX_SESSIONS_A_NOTICE),
    },
    contentType: 'json',
  }));
}
