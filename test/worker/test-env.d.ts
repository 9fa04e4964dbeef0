/** The bindings that tests see: those of the Worker as the runtime has them, and the keys of the test issuers. */
type WorkerEnv = import('../../worker/env.ts').Env;
type ObjectBindings = Pick<
  WorkerEnv,
  | 'SESSION'
  | 'HOST'
  | 'POOL'
  | 'TENANT'
  | 'MCP_CALLS'
  | 'SNAPSHOT_INDEX'
  | 'APPROVALS'
  | 'PROOFS'
  | 'KEYED_CALL'
  | 'SOURCE'
  | 'CATALOGUE'
  | 'ARTIFACTS'
  | 'WEBHOOKS'
  | 'WORKFLOW'
  | 'REPAIR'
>;

declare namespace Cloudflare {
  interface Env extends Omit<WorkerEnv, keyof ObjectBindings> {
    SESSION: WorkerEnv['SESSION'] & DurableObjectNamespace;
    HOST: WorkerEnv['HOST'] & DurableObjectNamespace;
    POOL: WorkerEnv['POOL'] & DurableObjectNamespace;
    TENANT: WorkerEnv['TENANT'] & DurableObjectNamespace;
    MCP_CALLS: WorkerEnv['MCP_CALLS'] & DurableObjectNamespace;
    SNAPSHOT_INDEX: WorkerEnv['SNAPSHOT_INDEX'] & DurableObjectNamespace;
    SOURCE: WorkerEnv['SOURCE'] & DurableObjectNamespace;
    CATALOGUE: WorkerEnv['CATALOGUE'] & DurableObjectNamespace;
    ARTIFACTS: WorkerEnv['ARTIFACTS'] & DurableObjectNamespace;
    WEBHOOKS: WorkerEnv['WEBHOOKS'] & DurableObjectNamespace;
    WORKFLOW: WorkerEnv['WORKFLOW'] & DurableObjectNamespace;
    REPAIR: WorkerEnv['REPAIR'] & DurableObjectNamespace;
    APPROVALS: WorkerEnv['APPROVALS'] & DurableObjectNamespace;
    PROOFS: WorkerEnv['PROOFS'] & DurableObjectNamespace;
    KEYED_CALL: WorkerEnv['KEYED_CALL'] & DurableObjectNamespace;
    TEST_ISSUER_KEYS: string;
  }
  interface GlobalProps {
    mainModule: typeof import('../../worker/index.ts');
  }
}
