/** What a host knows of a sandbox at a checkpoint, beside what gVisor wrote: with both, another host goes on with it. */
import * as z from 'zod';
import { ToolNameSchema } from '../../../shared/tool.ts';
import {
  CarriedFilesSchema,
  CarriedKernelSchema,
  CarriedLinkSchema,
  CarriedShellSchema,
} from '../../guest-link/carried.ts';
import { CarriedProgramsSchema } from '../programs/carried.ts';
import { FIRST_SANDBOX_USER, LAST_SANDBOX_USER } from '../spec.ts';

const MAX_VARIABLES = 4_096;
const MAX_CALLS = 8;

const CarriedKernelToolSchema = z.strictObject({
  kernel: CarriedKernelSchema.nullable(),
  had_state: z.boolean(),
  lost_state: z.boolean(),
});

const CarriedCallSchema = z.strictObject({
  tool: ToolNameSchema,
  takes_stdin: z.boolean(),
  timeout_left_ms: z.number().min(0),
  cpu_ms: z.number().min(0),
});
export type CarriedCall = z.infer<typeof CarriedCallSchema>;

export const CarriedSandboxSchema = z.strictObject({
  v: z.literal(1),
  /** Digest of the programs that the host lays into each sandbox: those that run must be there when it goes on. */
  guest: z.string().max(128),
  /** Id of the file that its root is; where it was a folder, none. */
  root: z.string().max(128).optional(),
  user_id: z.int().min(FIRST_SANDBOX_USER).max(LAST_SANDBOX_USER),
  place: z.strictObject({ cwd: z.string(), environment: z.array(z.string()).max(MAX_VARIABLES) }),
  link: CarriedLinkSchema,
  tools: z.strictObject({
    python: CarriedKernelToolSchema,
    node: CarriedKernelToolSchema,
    shell: CarriedShellSchema,
    run: CarriedShellSchema,
    file: CarriedFilesSchema,
  }),
  programs: CarriedProgramsSchema,
  /** What runs: of each tool one at most. */
  calls: z.array(CarriedCallSchema).max(MAX_CALLS),
});
export type CarriedSandbox = z.infer<typeof CarriedSandboxSchema>;
