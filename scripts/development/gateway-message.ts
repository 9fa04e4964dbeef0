/** What the gateway child tells its parent. */
import * as z from 'zod';

export const GatewayMessageSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ready'), url: z.string(), workerd_pid: z.int() }),
  z.object({ type: z.literal('workerd_restarted'), workerd_pid: z.int() }),
]);
export type GatewayMessage = z.infer<typeof GatewayMessageSchema>;
