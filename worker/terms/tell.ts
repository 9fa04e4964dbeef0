/** Tells sessions their terms. One that does not hear asks by itself, with its next report. */
import type { Env } from '../env.ts';
import { logWarning, messageOf } from '../objects/log.ts';
import { sessionObjectName } from '../objects/session-name.ts';
import type { TermsNotice } from './notice.ts';

const AT_ONCE = 20;

export async function tellTerms(
  { SESSION }: Pick<Env, 'SESSION'>,
  { tenant, terms, sessions }: TermsNotice,
): Promise<void> {
  const left = sessions.values();
  const tellNext = async (): Promise<void> => {
    for (const { sessionId, ...limits } of left) {
      try {
        await SESSION.getByName(sessionObjectName(tenant, sessionId)).hearTerms({ ...terms, ...limits });
      } catch (error: unknown) {
        logWarning('terms_not_heard', { session_id: sessionId, detail: messageOf(error) });
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, tellNext));
}
