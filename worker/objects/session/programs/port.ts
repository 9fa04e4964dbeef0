/** What is kept of a program beside its execution, and how one is begun. */
import * as z from 'zod';
import { ProgramLanguageSchema, ProgramLimitsSchema } from '../../../../shared/code-mode.ts';
import { ExecutionIdSchema } from '../../../../shared/ids.ts';
import { ToolPolicySchema } from '../../../../shared/tool-policy.ts';

/** What never changes: also the rights of whoever began it, which hold to its end. */
export const ProgramFactsSchema = z.strictObject({
  language: ProgramLanguageSchema,
  scopes: z.array(z.string()),
  toolPolicy: ToolPolicySchema.nullable().default(null),
  client: z.string(),
  /** By which the token of whoever began it is taken back. */
  tokenId: z.string().default(''),
  issuedAtMs: z.number().default(0),
  apiKeyId: z.string().nullable().default(null),
  /** Null: whatever those scopes allow. */
  tools: z.array(z.string()).nullable(),
  limits: ProgramLimitsSchema,
  /** The one that it goes on from, where its session was forked. */
  parentProgramId: ExecutionIdSchema.nullable().default(null),
});
export type ProgramFacts = z.infer<typeof ProgramFactsSchema>;
