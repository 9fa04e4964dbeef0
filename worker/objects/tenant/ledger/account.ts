/** What a session and its tenant tell each other of what is used. */
import * as z from 'zod';

/** Since the session began; each only grows. */
export interface UsedTotals {
  executions: number;
  cpuMs: number;
  egressBytes: number;
  outputBytes: number;
}

/** How a session stands. Absolute, so that a repeated or a lost report changes nothing. */
export interface SessionAccount {
  sessionId: string;
  subject: string;
  /** Grows with each report: a late one does not undo a later one. */
  n: number;
  /** Executions that have not ended, and those that are being admitted. */
  open: number;
  /** CPU time that the session holds of the budgets for what it has not settled. */
  reservedCpuMs: number;
  storageBytes: number;
  /** Whether it is in a snapshot and holds no host: then it has no place among the concurrent sessions. */
  suspended: boolean;
  used: UsedTotals;
}

/** One execution more. */
export interface WantedExecution {
  cpuMs: number;
}

/** A place among the concurrent sessions, for one that was suspended. */
export interface WantedPlace {
  place: true;
}

export type Wanted = WantedExecution | WantedPlace;

/** What a session has to do about limits from now on. */
export const LimitTermsSchema = z.strictObject({
  /** Whether every call has to be admitted by the tenant: something of it is limited. */
  limited: z.boolean(),
  /** Whether the end of each call has to be told at once: executions are counted. */
  counted: z.boolean(),
});
export type LimitTerms = z.infer<typeof LimitTermsSchema>;

/** How late a tenant without limits hears what was used … */
export const REPORT_AFTER_MS = 30_000;
/** … and how many sessions tell it in a second at most: of one with many sessions, each tells it the more seldom. */
export const REPORTS_PER_S = 20;

export function reportAfterMs(sessions: number): number {
  return Math.max(REPORT_AFTER_MS, Math.ceil((sessions * 1_000) / REPORTS_PER_S));
}

const WebhookTermsSchema = z.strictObject({
  /** Since when the tenant has webhooks: what happens is sent to them. Null where it has none. */
  webhooksSinceMs: z.number().nullable(),
});
export type WebhookTerms = z.infer<typeof WebhookTermsSchema>;

/** What a session has to do from now on. */
export const AccountTermsSchema = z.strictObject({
  ...LimitTermsSchema.shape,
  ...WebhookTermsSchema.shape,
  reportAfterMs: z.number(),
  /** Rises whenever the others change but for what a larger number of sessions does: late ones do not undo newer ones. */
  revision: z.number(),
});
export type AccountTerms = z.infer<typeof AccountTermsSchema>;
