/** The routes of other servers that are served here, each under a path of its own. They are no part of our description. */
import type { Route } from '../routing/route.ts';
import { MS_ENCLAVE_PATH } from './ms-enclave/dialect.ts';
import { msEnclaveRoutes } from './ms-enclave/routes.ts';
import { XAGENT_PATH } from './xagent/dialect.ts';
import { xagentRoutes } from './xagent/routes.ts';

export const ADAPTER_PATHS = [XAGENT_PATH, MS_ENCLAVE_PATH];
export const adapterRoutes: readonly Route[] = [...xagentRoutes, ...msEnclaveRoutes];
