/* Opens and runs every file named, with zeros as inputs and weights, and prints how each ended. For builds that check themselves: nothing may
 * be touched that is not there, nothing may be left over. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tx8fast/tx8.h>

enum { MOST = 64, MOST_BYTES = 1 << 24 };

static int busy;

static void *second(void *program) {
    int status = tx8_run(program, NULL, 0, NULL, 0, NULL);
    if (status == TX8_ERROR_BUSY) busy++;
    return NULL;
}

static int told(void *program, int64_t done, int64_t total) {
    pthread_t other;
    if (done == 1 && !pthread_create(&other, NULL, second, program)) pthread_join(other, NULL);
    return done > total;
}

static int run(tx8_program *program) {
    tx8_input in[MOST];
    tx8_output out[MOST];
    size_t n_in = tx8_input_count(program), n_out = tx8_output_count(program);
    int status = n_in > MOST || n_out > MOST ? TX8_ERROR_SIZE : TX8_OK;
    size_t ready_in = 0, ready_out = 0;
    for (; !status && ready_in < n_in; ready_in++) {
        tx8_tensor t;
        status = tx8_input_at(program, ready_in, &t);
        if (status || t.bytes > MOST_BYTES) break;
        in[ready_in] = (tx8_input){t.name, calloc(1, t.bytes + 1), t.bytes};
    }
    for (; !status && ready_out < n_out; ready_out++) {
        tx8_tensor t;
        status = tx8_output_at(program, ready_out, &t);
        if (status || t.bytes > MOST_BYTES) break;
        out[ready_out] = (tx8_output){t.name, calloc(1, t.bytes + 1), t.bytes, NULL};
    }
    if (ready_in < n_in || ready_out < n_out) status = TX8_ERROR_SIZE;
    for (size_t k = 0; !status && k < tx8_param_count(program); k++) {
        tx8_tensor t;
        status = tx8_param_at(program, k, &t);
        if (status || t.bytes > MOST_BYTES) break;
        void *zeros = calloc(1, t.bytes + 1);
        if (k % 2) status = tx8_set_param(program, t.name, zeros, t.bytes);
        free(zeros);
    }
    tx8_run_options options = {sizeof options, 2, told, program};
    for (int again = 0; !status && again < 2; again++) status = tx8_run(program, in, n_in, out, n_out, &options);
    for (size_t k = 0; k < ready_in; k++) free((void *)in[k].data);
    for (size_t k = 0; k < ready_out; k++) free(out[k].data);
    return status;
}

static int killed(void) { /* a worker that ends itself, then one that cannot be started */
    const char *const dies[] = {"sh", "-c", "read line; kill -9 $$", NULL}, *const none[] = {"/nix", NULL}, *const arguments[] = {"a", "b", NULL};
    const char *const *const all[] = {dies, none};
    int found = 0;
    for (int k = 0; k < 2; k++) {
        tx8_worker *worker;
        if (tx8_worker_open(all[k], &worker)) return 0;
        for (int again = 0; again < 2; again++) found += tx8_worker_call(worker, "compile", arguments, NULL, NULL, NULL) == TX8_ERROR_WORKER;
        tx8_worker_close(worker);
    }
    return found;
}

int main(int count, char **paths) {
    for (int k = 1; k < count; k++) {
        tx8_program *program;
        int status = tx8_open(paths[k], &program), ran = -1;
        if (!status) {
            ran = run(program);
            tx8_close(program);
        }
        printf("%d %d %s\n", status, ran, status || ran > 0 ? tx8_last_error() : "");
    }
    printf("busy %d, lost %d\n", busy, killed());
    return 0;
}
