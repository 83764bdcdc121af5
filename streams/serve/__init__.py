"""The HTTP service: what the sites would tell a job, for people and programs that do not speak Kafka.

`service` says what each request is answered, `web` at which paths and with which parameters, `around` what goes round
every answer, `run` runs it. It keeps nothing: what stands is on the topics, the rest is asked of the workers.
"""
