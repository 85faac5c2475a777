/* SPDX-License-Identifier: BSD-2-Clause */
/* A program that does nothing: what perf/startup starts a thousand times. */
int main(void)
{
    return 0;
}
