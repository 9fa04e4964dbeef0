/*
 * An addon of the JavaScript kernel: OpenSSL's generator inside Node goes on from its state, and Node has no word by
 * which it seeds itself anew. The functions are those of the process that loads it; there is no library to link with.
 */
typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_callback_info__ *napi_callback_info;
typedef napi_value (*napi_callback)(napi_env env, napi_callback_info info);
typedef int napi_status;

extern napi_status napi_create_function(napi_env env, const char *name, unsigned long length,
                                        napi_callback call, void *data, napi_value *result);
extern int RAND_poll(void) __attribute__((weak));

static napi_value reseed(napi_env env, napi_callback_info info) {
  (void)env;
  (void)info;
  if (RAND_poll != 0) RAND_poll();
  return 0;
}

__attribute__((visibility("default"))) napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  napi_value function;
  return napi_create_function(env, "reseed", 6, reseed, 0, &function) == 0 ? function : exports;
}
