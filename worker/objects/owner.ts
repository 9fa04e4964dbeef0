/** Who started a run on the engine: each of its calls is made in that name. */
import * as z from 'zod';
import { TenantSchema } from '../../shared/ids.ts';
import { ToolPolicySchema } from '../../shared/tool-policy.ts';

/** With the rights that the token gave then: each call of the run is judged by them. */
export const OwnerSchema = z.strictObject({
  tenant: TenantSchema,
  subject: z.string().min(1),
  client: z.string(),
  scopes: z.array(z.string()),
  toolPolicy: ToolPolicySchema.nullable().default(null),
  tokenId: z.string(),
  boundTo: z.string().nullable().optional(),
  issuedAtMs: z.number().default(0),
  apiKeyId: z.string().nullable().default(null),
  expiresAtMs: z.number(),
});
export type Owner = z.infer<typeof OwnerSchema>;
