/** What an operator grants a tenant, and what a tenant has used: limits, budgets and daily usage. */
import * as z from 'zod';
import { TenantSchema } from './ids.ts';

/** Without control characters: subjects go into logs, grants and names of objects. */
export const SubjectSchema = z
  .string()
  .min(1)
  .max(255)
  .regex(/^[^\p{Cc}\p{Zl}\p{Zp}\p{Cs}]+$/u);

const MAX_NAMED_SUBJECTS = 256;

const limit = (about: string) =>
  z.int().min(0).max(Number.MAX_SAFE_INTEGER).nullable().default(null).describe(`${about}; null: no limit.`);

/** Of a tenant as a whole, or of each of its subjects. */
export const LimitSetSchema = z.strictObject({
  requests_per_minute: z
    .int()
    .min(1)
    .max(9_999_999)
    .nullable()
    .default(null)
    .describe("Requests of any kind; null: the edge's own rate for a tenant, no limit for a subject."),
  concurrent_sessions: limit('Sessions that hold a host, or may: not those that are suspended'),
  concurrent_executions: limit('Executions that have not ended, waiting ones included'),
  cpu_seconds_per_day: limit('CPU time of executions on one day in UTC'),
  egress_bytes_per_day: limit('Bytes that executions move through the way out on one day in UTC'),
  storage_bytes: limit('Bytes that the edge keeps: output and results, snapshots and artifacts'),
});
export type LimitSet = z.infer<typeof LimitSetSchema>;

/** Of each session, for its whole life. */
export const SessionBudgetSchema = z.strictObject({
  executions: limit('Executions that began'),
  cpu_seconds: limit('CPU time of executions'),
  egress_bytes: limit('Bytes that executions move through the way out'),
  storage_bytes: limit('Bytes of output and results that the edge keeps for the session'),
});
export type SessionBudget = z.infer<typeof SessionBudgetSchema>;

export const TenantLimitsSchema = z.strictObject({
  tenant: LimitSetSchema.prefault({}),
  subject: LimitSetSchema.prefault({}).describe('Of each subject that `subjects` does not name.'),
  subjects: z
    .record(z.string().min(1).max(255), LimitSetSchema)
    .default({})
    .refine((subjects) => Object.keys(subjects).length <= MAX_NAMED_SUBJECTS, {
      message: `at most ${MAX_NAMED_SUBJECTS} subjects`,
    }),
  session: SessionBudgetSchema.prefault({}),
});
export type TenantLimits = z.infer<typeof TenantLimitsSchema>;
export const NO_LIMITS: TenantLimits = TenantLimitsSchema.parse({});

export type LimitName = keyof LimitSet | keyof SessionBudget;
export type LimitScope = 'tenant' | 'subject' | 'session';

const count = z.int().min(0);

export const UsageSchema = z.object({
  sessions: count.describe('Sessions that were created.'),
  executions: count,
  cpu_seconds: z.number().min(0),
  egress_bytes: count,
  output_bytes: count,
});
export type Usage = z.infer<typeof UsageSchema>;

export const DaySchema = z.iso.date();

export const UsageReportSchema = z.object({
  tenant: TenantSchema,
  /** Oldest first; days without use are left out. */
  days: z.array(UsageSchema.extend({ day: DaySchema })),
  now: z.object({
    concurrent_sessions: count,
    suspended_sessions: count,
    concurrent_executions: count,
    storage_bytes: count,
    reserved_cpu_seconds: z.number().min(0),
  }),
  limits: TenantLimitsSchema,
});
export type UsageReport = z.infer<typeof UsageReportSchema>;

export const SubjectUsageSchema = z.object({
  tenant: TenantSchema,
  day: DaySchema,
  subjects: z.array(UsageSchema.extend({ subject: z.string() })),
  next_cursor: z.string().nullable(),
});

/** One line of the list of tenants. */
export const ListedTenantSchema = z.object({
  tenant: TenantSchema,
  first_seen_at: z.iso
    .datetime()
    .describe('When it called, or an operator set something of it, for the first time.'),
});
export type ListedTenant = z.infer<typeof ListedTenantSchema>;
