/** The engine's binding as this project uses it: its own type would pull the class of the run into `env.ts`. */
export interface RunNamespace {
  create(run: { id: string; params: { tenant: string; id: string } }): Promise<RunInstance>;
  get(id: string): Promise<RunInstance>;
}

export interface RunInstance {
  status(): Promise<{ status: string }>;
  terminate(): Promise<void>;
  pause(): Promise<void>;
  resume(): Promise<void>;
}
