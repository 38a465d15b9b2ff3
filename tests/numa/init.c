/* SPDX-License-Identifier: MIT */
/* The first process of the guest: what a program expects of a machine, the tests, and off. */
#include <stdio.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int put_up(const char *type, const char *at)
{
    mkdir(at, 0755);
    return mount(type, at, type, 0, NULL);
}

static int run(const char *program)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        execl(program, program, (char *)NULL);
        perror(program);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    return status;
}

int main(void)
{
    if (put_up("proc", "/proc") != 0 || put_up("sysfs", "/sys") != 0)
        perror("mount");
    put_up("devtmpfs", "/dev"); /* the kernel may have done it */
    mkdir("/tmp", 01777);
    int status = run("/guest");
    printf("guest: the tests ended with status %#x\n", (unsigned)status);
    fflush(stdout);
    sync();
    reboot(RB_POWER_OFF);
    return 1;
}
